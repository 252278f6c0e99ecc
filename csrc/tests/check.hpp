// A test registers itself; a failed CHECK is counted, printed and does not stop the others.
#pragma once

#include <cstdio>
#include <vector>

namespace riemem::test {

struct Case {
    const char* name;
    void (*run)();
};

inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}

inline int& failures() {
    static int count = 0;
    return count;
}

struct Register {
    Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

}  // namespace riemem::test

#define RIEMEM_TEST(name)                                             \
    static void name();                                               \
    static const riemem::test::Register register_##name{#name, name}; \
    static void name()

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            ++riemem::test::failures();                                                        \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
        }                                                                                      \
    } while (false)
