// User objects.
#include "csrc/sim/user_object.h"

namespace foundry::sim {
namespace {

HandleTable<UserObject, CUuserObject, Kind::kUserObject>& user_objects() {
  static auto* table = new HandleTable<UserObject, CUuserObject, Kind::kUserObject>;
  return *table;
}

// Objects that only graphs hold are found through them no more, as with the real driver.
CUresult find_object(CUuserObject handle, std::shared_ptr<UserObject>* object) {
  *object = user_objects().find(handle);
  if (*object != nullptr) return CUDA_SUCCESS;
  return fail(CUDA_ERROR_INVALID_VALUE, "user object %p was %s", static_cast<void*>(handle),
              user_objects().why_not(handle));
}

CUresult release(CUuserObject handle, UserObject& object, unsigned count) {
  if (count > object.references) {
    return fail(CUDA_ERROR_INVALID_VALUE, "%u references are released, there are %u", count, object.references);
  }
  object.references -= count;
  if (object.references == 0) user_objects().remove(handle);
  return CUDA_SUCCESS;
}

}  // namespace

UserObject::~UserObject() {
  in_host_function() = true;  // calls of the driver are refused there
  destroy(pointer);
  in_host_function() = false;
}

SIM_API(cuUserObjectCreate, (CUuserObject * out, void* pointer, CUhostFn destroy, unsigned references, unsigned flags),
        (out, pointer, destroy, references, flags)) {
  if (out == nullptr || destroy == nullptr || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return fail(CUDA_ERROR_INVALID_VALUE, "null argument, no reference, or flags %u", flags);
  }
  auto object = std::make_shared<UserObject>();
  object->pointer = pointer;
  object->destroy = destroy;
  object->references = references;
  *out = user_objects().add(object);
  return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRetain, (CUuserObject handle, unsigned count), (handle, count)) {
  std::shared_ptr<UserObject> object;
  SIM_TRY(find_object(handle, &object));
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRelease, (CUuserObject handle, unsigned count), (handle, count)) {
  std::shared_ptr<UserObject> object;
  SIM_TRY(find_object(handle, &object));
  return release(handle, *object, count);
}

SIM_API(cuGraphRetainUserObject, (CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags),
        (graph_handle, handle, count, flags)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(graph_handle, &graph));
  std::shared_ptr<UserObject> object;
  SIM_TRY(find_object(handle, &object));
  if (count == 0 || (flags & ~CU_GRAPH_USER_OBJECT_MOVE) != 0) return fail(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) != 0) SIM_TRY(release(handle, *object, count));
  graph->user_objects[object] += count;
  return CUDA_SUCCESS;
}

SIM_API(cuGraphReleaseUserObject, (CUgraph graph_handle, CUuserObject handle, unsigned count),
        (graph_handle, handle, count)) {
  std::shared_ptr<Graph> graph;
  SIM_TRY(find_graph(graph_handle, &graph));
  std::shared_ptr<UserObject> object;
  SIM_TRY(find_object(handle, &object));
  auto it = graph->user_objects.find(object);
  if (it == graph->user_objects.end() || it->second < count) {
    return fail(CUDA_ERROR_INVALID_VALUE, "the graph holds fewer references");
  }
  it->second -= count;
  if (it->second == 0) graph->user_objects.erase(it);
  return CUDA_SUCCESS;
}

}  // namespace foundry::sim
