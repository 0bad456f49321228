#include "csrc/base/processor.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace fewstep {

#if defined(__x86_64__)

namespace {

// The features of a level beyond the one below, as the psABI lists them; GCC 11 does not know the levels by name. The functions
// read CPUID, and XGETBV for the registers of AVX and AVX-512.
bool runs_v2() {
    return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
           __builtin_cpu_supports("popcnt");
}

bool runs_v3() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
           __builtin_cpu_supports("movbe");
}

bool runs_v4() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool runs_vnni_and_bf16() { return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16"); }

}  // namespace

std::vector<std::string> processor_levels() {
    __builtin_cpu_init();
    std::vector<std::string> levels;
    if (!runs_v2()) return levels;
    levels.push_back("x86-64-v2");
    if (!runs_v3()) return levels;
    levels.push_back("x86-64-v3");
    if (!runs_v4()) return levels;
    levels.push_back("x86-64-v4");
    if (runs_vnni_and_bf16()) levels.push_back("x86-64-v4-vnni-bf16");
    return levels;
}

#elif defined(__aarch64__)

std::vector<std::string> processor_levels() {
    std::vector<std::string> levels{"arm64"};
#if defined(__linux__)
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) levels.push_back("arm64-dotprod");
#elif defined(__APPLE__)
    levels.push_back("arm64-dotprod");  // all of Apple's have it
#endif
    return levels;
}

#else

std::vector<std::string> processor_levels() { return {"generic"}; }

#endif

}  // namespace fewstep
