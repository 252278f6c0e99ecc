#include "check.hpp"

int main() {
    int failed = 0;
    for (const riemem::test::Case& test : riemem::test::cases()) {
        const int before = riemem::test::failures();
        test.run();
        const bool ok = riemem::test::failures() == before;
        if (!ok) ++failed;
        std::printf("%s %s\n", ok ? "ok  " : "FAIL", test.name);
    }
    std::printf("%zu passed, %d failed\n",
                riemem::test::cases().size() - static_cast<std::size_t>(failed), failed);
    return failed == 0 ? 0 : 1;
}
