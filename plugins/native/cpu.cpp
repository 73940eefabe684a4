// CPUID, and the one system call that AMX needs.
//
// avx512 here means AVX-512 F/BW/DQ/VL with BF16 and VNNI (Zen 4, Sapphire Rapids and later): a processor without the
// latter two takes the avx2 path, which is as fast there. amx adds AMX-TILE, AMX-BF16 and AMX-INT8.

#include "cpu.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace paceline {
namespace {

constexpr const char* kNames[] = {"portable", "avx2", "avx512", "amx"};

#if defined(__x86_64__)

// Linux hands out the 8 KB of tile state only on request, once a process.
// Source: Linux kernel, Documentation/arch/x86/xstate.rst.
bool request_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_avx512_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);
}

bool has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  const bool bf16 = edx >> 22 & 1, tile = edx >> 24 & 1, int8 = edx >> 25 & 1;
  return bf16 && tile && int8;
}

Isa detect() {
  __builtin_cpu_init();
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return Isa::kPortable;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni") && has_avx512_bf16();
  if (!avx512) return Isa::kAvx2;
  return has_amx() && request_tiles() ? Isa::kAmx : Isa::kAvx512;
}

#else

Isa detect() { return Isa::kPortable; }

#endif

Isa lowered(Isa best) {
  const char* wanted = std::getenv("PACELINE_ISA");
  if (wanted == nullptr) return best;
  for (int level = 0; level < static_cast<int>(best); ++level)
    if (std::strcmp(wanted, kNames[level]) == 0) return static_cast<Isa>(level);
  return best;
}

}  // namespace

Isa isa() {
  static const Isa level = lowered(detect());
  return level;
}

const char* isa_name(Isa level) { return kNames[static_cast<int>(level)]; }

}  // namespace paceline

extern "C" const char* paceline_isa() { return paceline::isa_name(paceline::isa()); }
