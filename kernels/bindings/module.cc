#include <cerrno>

#include "bindings/bindings.h"
#include "csrc/base/files.h"
#include "csrc/base/parallel.h"

namespace nb = nanobind;

// Incremented when a signature changes; fewstep/native.py expects the same number.
constexpr int ABI = 31;

namespace {

// Translate FileError and ThreadError to OSError.
void translate_system_errors(const std::exception_ptr& raised, void*) {
    try {
        std::rethrow_exception(raised);
    } catch (const fewstep::FileError& error) {
        errno = error.code().value();
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.path().c_str());
    } catch (const fewstep::ThreadError& error) {
        PyErr_SetString(PyExc_OSError, error.what());
    }
}

}  // namespace

// The build defines the name of the level (FEWSTEP_LEVEL) and of its module.
NB_MODULE(FEWSTEP_MODULE, module) {
    module.attr("ABI") = ABI;
    module.attr("LEVEL") = FEWSTEP_LEVEL;
    nb::register_exception_translator(translate_system_errors);
    fewstep::bind_aggressive(module);
    fewstep::bind_beam(module);
    fewstep::bind_bitext(module);
    fewstep::bind_ctc_beam(module);
    fewstep::bind_fast_align(module);
    fewstep::bind_joint_step(module);
    fewstep::bind_lattice_search(module);
    fewstep::bind_lattice_network(module);
    fewstep::bind_align_shards(module);
    fewstep::bind_symmetrise(module);
    fewstep::bind_candidates(module);
    fewstep::bind_ngram(module);
    fewstep::bind_dag_paths(module);
    fewstep::bind_dag_search(module);
    fewstep::bind_dropout(module);
    fewstep::bind_fused_attention(module);
    fewstep::bind_dag_network(module);
    fewstep::bind_parallel_network(module);
    fewstep::bind_token_scores(module);
    fewstep::bind_transformer(module);
}
