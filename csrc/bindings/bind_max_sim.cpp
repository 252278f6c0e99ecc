#include "bindings/bindings.hpp"
#include "kernels/max_sim/max_sim.hpp"

namespace riemem {
namespace {

MaxSimQuestion question_of(const Array<std::int8_t>& array) {
    if (array.ndim() != 2) throw InvalidArgument("question: expected a 2-d array");
    const auto d = static_cast<std::size_t>(array.shape(1));
    if (d == 0 || d % 8 != 0 || d > kMaxSimMostDims) {
        throw InvalidArgument("question: expected a multiple of 8 columns, 8 to " +
                              std::to_string(kMaxSimMostDims) + ", got " + std::to_string(d));
    }
    return {array.data(), static_cast<std::size_t>(array.shape(0)), d};
}

// Refuses counts with which the kernel would read past the rows, or leave some unread.
MaxSimTexts texts_of(const Array<std::uint8_t>& rows, const Array<std::int64_t>& counts,
                     std::size_t d) {
    if (rows.ndim() != 2 || static_cast<std::size_t>(rows.shape(1)) != d / 8) {
        throw InvalidArgument("rows: expected shape (T, " + std::to_string(d / 8) +
                              "), a bit for each column of question");
    }
    if (counts.ndim() != 1) throw InvalidArgument("counts: expected a 1-d array");
    const std::int64_t* count = counts.data();
    const auto texts = static_cast<std::size_t>(counts.shape(0));
    const std::int64_t all = rows.shape(0);
    std::int64_t sum = 0;
    bool fits = true;
    for (std::size_t i = 0; i < texts; ++i) {
        if (count[i] < 0) {
            throw InvalidArgument("counts: expected no negative number, got " +
                                  std::to_string(count[i]));
        }
        fits = fits && count[i] <= all - sum;
        if (fits) sum += count[i];
    }
    if (!fits || sum != all) {
        throw InvalidArgument("counts: expected the sum " + std::to_string(all) +
                              ", the number of rows, got " +
                              (fits ? std::to_string(sum) : std::string("more")));
    }
    return {rows.data(), count, texts};
}

Array<std::int32_t> best_of(const Array<std::int8_t>& question, const Array<std::uint8_t>& rows,
                            const Array<std::int64_t>& counts, const std::string& isa) {
    const Isa chosen = resolve_isa(isa);
    const MaxSimQuestion asked = question_of(question);
    const MaxSimTexts texts = texts_of(rows, counts, asked.d);
    Array<std::int32_t> out({question.shape(0), counts.shape(0)});
    std::int32_t* data = out.mutable_data();
    {
        const py::gil_scoped_release release;
        max_sim(asked, texts, chosen, data);
    }
    return out;
}

}  // namespace

void bind_max_sim(py::module_& module) {
    using py::arg;
    module.attr("max_sim_most_dims") = kMaxSimMostDims;
    module.def("max_sim", &best_of, arg("question").noconvert(), arg("rows").noconvert(),
               arg("counts").noconvert(), arg("isa") = "auto");
}

}  // namespace riemem
