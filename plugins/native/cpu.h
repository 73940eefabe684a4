// Which instructions the kernels may use here.
//
// Decided once, from CPUID and the operating system's word; the environment variable PACELINE_ISA (portable, avx2,
// avx512, amx) can only lower it, so that every path can be tested on one machine.

#pragma once

namespace paceline {

enum class Isa { kPortable = 0, kAvx2 = 1, kAvx512 = 2, kAmx = 3 };

// The best level that the processor has, after PACELINE_ISA.
Isa isa();

const char* isa_name(Isa level);

}  // namespace paceline
