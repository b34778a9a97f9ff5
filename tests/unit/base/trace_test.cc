#include "csrc/base/trace.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace foundry::trace {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    enable(true);
    take();
  }
  void TearDown() override {
    enable(false);
    take();
  }
};

TEST_F(TraceTest, NothingIsRecordedUnasked) {
  enable(false);
  {
    Span span("work");
  }
  EXPECT_TRUE(take().events.empty());
}

TEST_F(TraceTest, ASpanThatBeganUnaskedIsNotRecorded) {
  enable(false);
  {
    Span span("work");
    enable(true);
  }
  EXPECT_TRUE(take().events.empty());
}

TEST_F(TraceTest, SpansHaveTimesNamesAndCounts) {
  {
    Span outer("outer");
    Span inner("inner", std::string("of ") + "it");
    inner.bytes(7);
    inner.count(3);
  }
  const Recording recording = take();
  ASSERT_EQ(recording.events.size(), 2u);
  const Event& inner = recording.events[0];
  const Event& outer = recording.events[1];
  EXPECT_STREQ(inner.name, "inner");
  EXPECT_EQ(inner.detail, "of it");
  EXPECT_EQ(inner.bytes, 7u);
  EXPECT_EQ(inner.count, 3u);
  EXPECT_EQ(outer.detail, "");
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_EQ(recording.dropped, 0u);
}

// Indices of threads belong to one recording: the next one lists them anew.
TEST_F(TraceTest, ThreadsAreNamedInEveryRecording) {
  for (int round = 0; round < 2; ++round) {
    {
      Span span("here");
    }
    std::thread named([] {
      name_thread("worker");
      Span span("there");
    });
    named.join();
    std::thread nameless([] { Span span("there"); });
    nameless.join();
    const Recording recording = take();
    ASSERT_EQ(recording.events.size(), 3u);
    ASSERT_EQ(recording.threads.size(), 3u);
    EXPECT_EQ(recording.threads[recording.events[1].thread], "worker");
    EXPECT_EQ(recording.threads[recording.events[2].thread].rfind("thread ", 0), 0u);
    EXPECT_NE(recording.events[0].thread, recording.events[1].thread);
  }
  EXPECT_TRUE(take().threads.empty());
}

TEST_F(TraceTest, ThreadsRecordAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) Span span("work", "of a thread");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Recording recording = take();
  EXPECT_EQ(recording.events.size(), 4000u);
  EXPECT_EQ(recording.threads.size(), 4u);
}

TEST_F(TraceTest, WhatIsTooMuchIsCounted) {
  for (size_t i = 0; i < kMost + 5; ++i) Span span("work");
  const Recording recording = take();
  EXPECT_EQ(recording.events.size(), kMost);
  EXPECT_EQ(recording.dropped, 5u);
}

}  // namespace
}  // namespace foundry::trace
