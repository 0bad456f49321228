#include "csrc/base/processor.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace fewstep {

#if defined(__x86_64__)

// __builtin_cpu_supports reads CPUID, and XGETBV for the registers of AVX and AVX-512.
std::vector<std::string> processor_levels() {
    __builtin_cpu_init();
    std::vector<std::string> levels;
    if (!__builtin_cpu_supports("x86-64-v2")) return levels;
    levels.push_back("x86-64-v2");
    if (!__builtin_cpu_supports("x86-64-v3")) return levels;
    levels.push_back("x86-64-v3");
    if (!__builtin_cpu_supports("x86-64-v4")) return levels;
    levels.push_back("x86-64-v4");
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16")) levels.push_back("x86-64-v4-vnni-bf16");
    return levels;
}

#elif defined(__aarch64__)

std::vector<std::string> processor_levels() {
    std::vector<std::string> levels{"arm64"};
#if defined(__linux__)
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) levels.push_back("arm64-dotprod");
#endif
    return levels;
}

#else

std::vector<std::string> processor_levels() { return {"generic"}; }

#endif

}  // namespace fewstep
