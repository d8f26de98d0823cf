// SPDX-License-Identifier: GPL-2.0-only
/* The tracepoints themselves, and the functions by which Rust reaches those that are on. */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace.h"
