// Between plain structs and protobuf bytes; internal to src/plan (plan_io.h is the way in). No check of indices here.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"
#include "support/error.h"

namespace piper::plan {

// The bytes of the message Plan of plan.proto; equal plans give equal bytes. Fails above protobuf's limit of 2 GiB.
support::Expected<std::string> encode(const Plan& plan);
// The inverse. Fails on bytes that are no such message and on enumerators that this version does not know.
support::Expected<Plan> decode(std::string_view bytes);

}  // namespace piper::plan
