// The failures native code reports; the bindings turn each into its Python type.
#pragma once

#include <stdexcept>
#include <string>

namespace riemem {

class BackendUnavailable : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

class InvalidArgument : public std::invalid_argument {
 public:
    using std::invalid_argument::invalid_argument;
};

}  // namespace riemem
