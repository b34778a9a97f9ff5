// A function that needs Boost and TBB, to test the macros with.
#pragma once

namespace foundry::selftest {

/// The sum of i*i for i below `count`.
long sum_of_squares(int count);

}  // namespace foundry::selftest
