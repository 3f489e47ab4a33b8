// SPDX-License-Identifier: Apache-2.0
// Defines which sanitizers a file is compiled with. GCC and Clang use different macros.
#pragma once

#ifdef __has_feature  // Clang
#if __has_feature(address_sanitizer)
#define HALFSTEP_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define HALFSTEP_THREAD_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define HALFSTEP_ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define HALFSTEP_THREAD_SANITIZER 1
#endif
