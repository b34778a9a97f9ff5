// Module variables that PTX text declares. The driver compiles PTX out of sight: the text is all there is to read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foundry::archive {

// Names of the .global and .const variables that the text defines at module scope, in order; .extern ones are defined
// elsewhere and not listed. Any bytes are taken: what is no PTX declares nothing.
std::vector<std::string> ptx_variables(std::string_view ptx);

}  // namespace foundry::archive
