// The functions that add the bindings of each file to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace fewstep {

void bind_aggressive(nanobind::module_& module);
void bind_beam(nanobind::module_& module);
void bind_bitext(nanobind::module_& module);
void bind_fast_align(nanobind::module_& module);
void bind_ctc_beam(nanobind::module_& module);
void bind_joint_step(nanobind::module_& module);
void bind_lattice_search(nanobind::module_& module);
void bind_lattice_network(nanobind::module_& module);
void bind_align_shards(nanobind::module_& module);
void bind_symmetrise(nanobind::module_& module);
void bind_candidates(nanobind::module_& module);
void bind_ngram(nanobind::module_& module);
void bind_dag_paths(nanobind::module_& module);
void bind_dag_search(nanobind::module_& module);
void bind_dropout(nanobind::module_& module);
void bind_fused_attention(nanobind::module_& module);
void bind_dag_network(nanobind::module_& module);
void bind_parallel_network(nanobind::module_& module);
void bind_token_scores(nanobind::module_& module);
void bind_transformer(nanobind::module_& module);

}  // namespace fewstep
