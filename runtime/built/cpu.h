/* The features of a CPU that code may use, and whether this CPU has them. Part of runtime.c. */
#if defined(__x86_64__)
#include <cpuid.h>
#define MACHINE 62
#elif defined(__aarch64__)
#include <sys/auxv.h>
#define MACHINE 183
#elif defined(__riscv) && __riscv_xlen == 64
#include <sys/auxv.h>
#define MACHINE 243
#else
#error "programs are built for x86-64, aarch64 and riscv64"
#endif

#if defined(__x86_64__)
/* Bits of `features` in order: as FEATURES of form.py. Register 1 to 3: ebx, ecx, edx; state: 1 for AVX, 2 for AVX-512. */
static const struct { const char *name; unsigned leaf, sub; int reg, bit, state; } checks[] = {
    {"sse3", 1, 0, 2, 0, 0}, {"ssse3", 1, 0, 2, 9, 0}, {"sse4.1", 1, 0, 2, 19, 0}, {"sse4.2", 1, 0, 2, 20, 0},
    {"popcnt", 1, 0, 2, 23, 0}, {"cx16", 1, 0, 2, 13, 0}, {"movbe", 1, 0, 2, 22, 0}, {"avx", 1, 0, 2, 28, 1},
    {"fma", 1, 0, 2, 12, 1}, {"f16c", 1, 0, 2, 29, 1}, {"avx2", 7, 0, 1, 5, 1}, {"bmi", 7, 0, 1, 3, 0}, {"bmi2", 7, 0, 1, 8, 0},
    {"lzcnt", 0x80000001, 0, 2, 5, 0}, {"avx512f", 7, 0, 1, 16, 2}, {"avx512dq", 7, 0, 1, 17, 2}, {"avx512cd", 7, 0, 1, 28, 2},
    {"avx512bw", 7, 0, 1, 30, 2}, {"avx512vl", 7, 0, 1, 31, 2}, {"avx512ifma", 7, 0, 1, 21, 2}, {"avx512vbmi", 7, 0, 2, 1, 2},
    {"avx512vbmi2", 7, 0, 2, 6, 2}, {"avx512vnni", 7, 0, 2, 11, 2}, {"avx512bitalg", 7, 0, 2, 12, 2},
    {"avx512vpopcntdq", 7, 0, 2, 14, 2}, {"gfni", 7, 0, 2, 8, 0}, {"vaes", 7, 0, 2, 9, 1}, {"vpclmulqdq", 7, 0, 2, 10, 1},
    {"avx512fp16", 7, 0, 3, 23, 2}, {"avx512bf16", 7, 1, 0, 5, 2}, {"avxvnni", 7, 1, 0, 4, 1}, {"avxvnniint8", 7, 1, 3, 4, 1},
    {"avxneconvert", 7, 1, 3, 5, 1}, {"avxifma", 7, 1, 0, 23, 1}};

static int has(int i) {
  unsigned r[4] = {0, 0, 0, 0}, low = 0, high = 0;
  if (checks[i].state) { /* the system must save the registers too */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low), "=d"(high) : "c"(0)); /* xgetbv */
    unsigned wanted = checks[i].state == 2 ? 0xe6 : 0x6;
    if ((low & wanted) != wanted) return 0;
  }
  return __get_cpuid_count(checks[i].leaf, checks[i].sub, &r[0], &r[1], &r[2], &r[3]) && (r[checks[i].reg] >> checks[i].bit & 1);
}
#elif defined(__riscv)
static const struct { const char *name; int bit; } checks[] = {{"m", 12}, {"a", 0}, {"f", 5}, {"d", 3}, {"c", 2}, {"v", 21}};

static int has(int i) { return getauxval(AT_HWCAP) >> checks[i].bit & 1; }
#else
static const struct { const char *name; int word, bit; } checks[] = {
    {"neon", 0, 1}, {"dotprod", 0, 20}, {"fullfp16", 0, 10}, {"fp16fml", 0, 23}, {"sve", 0, 22}, {"sve2", 1, 1},
    {"i8mm", 1, 13}, {"bf16", 1, 14}, {"lse", 0, 8}, {"rcpc", 0, 15}};

static int has(int i) { return getauxval(checks[i].word ? AT_HWCAP2 : AT_HWCAP) >> checks[i].bit & 1; }
#endif

static const char *lacking(int64_t features) {
  for (unsigned i = 0; i < sizeof checks / sizeof *checks; i++)
    if (features >> i & 1 && !has((int)i)) return checks[i].name;
  return features >> (sizeof checks / sizeof *checks) ? "a feature of a later version" : 0;
}
