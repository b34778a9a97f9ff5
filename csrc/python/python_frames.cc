#include <Python.h>

#include "csrc/python/python_frames.h"

#include <frameobject.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace foundry::python {
namespace {

constexpr size_t kMost = 32;

std::atomic<bool> g_wanted{false};

// What a thread took before it let go of the lock. The strings belong to code objects of functions that it is in.
thread_local std::array<foundry_python_frame, kMost> t_held;
thread_local size_t t_held_count = 0;

// Whether this thread holds the interpreter lock. PyGILState_Check() alone says yes to everybody once an interpreter
// was made beside the first one.
bool holds_lock() {
#ifdef Py_GIL_DISABLED
  return false;
#else
  if (!Py_IsInitialized()) return false;
  PyThreadState* const mine = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030D0000
  PyThreadState* const current = PyThreadState_GetUnchecked();
#else
  PyThreadState* const current = _PyThreadState_UncheckedGet();
#endif
  return mine != nullptr && mine == current && PyGILState_Check() != 0;
#endif
}

// The text lives as long as the object, which is a name in a code object.
const char* text(PyObject* name) {
  const char* utf8 = name != nullptr && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (utf8 == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return utf8;
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// With the lock held.
size_t walk(foundry_python_frame* out, size_t capacity) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);   // an exception may be on its way
  const int collects = PyGC_Disable();  // frame objects are made here; a collection could run anybody's code
  size_t count = 0;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr && count < capacity) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const int line = PyFrame_GetLineNumber(frame);
    out[count++] = {text(code->co_name), base_name(text(code->co_filename)),
                    line < 0 ? 0u : static_cast<uint32_t>(line), 0};
    Py_DECREF(code);  // the running function keeps it
    PyFrameObject* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  if (collects != 0) PyGC_Enable();
  PyErr_Restore(type, value, trace);
  return count;
}

size_t frames(foundry_python_frame* out, size_t capacity) {
  if (t_held_count != 0) {
    const size_t count = std::min(capacity, t_held_count);
    std::copy_n(t_held.begin(), count, out);
    return count;
  }
  // Never wait for the lock: whoever has it may wait for a lock of the allocator that called us.
  return holds_lock() ? walk(out, capacity) : 0;
}

}  // namespace

void offer_python_frames(const foundry_abi& abi) {
  if ((abi.journal_level() & FOUNDRY_JOURNAL_PYTHON) == 0) return;
  abi.set_python_walker(&frames);
  g_wanted.store(true);
}

HeldFrames::HeldFrames() : previous_(t_held_count) {
  if (previous_ == 0 && g_wanted.load(std::memory_order_relaxed)) t_held_count = walk(t_held.data(), kMost);
}

HeldFrames::~HeldFrames() { t_held_count = previous_; }

}  // namespace foundry::python
