"""The public names of the kernels and the modules that define them."""

from kernels.dag import DagAlignment as DagAlignment
from kernels.dag import dag_best_alignment as dag_best_alignment
from kernels.dag import dag_log_likelihood as dag_log_likelihood
from kernels.dag import dag_max_log_likelihood as dag_max_log_likelihood
from kernels.dag import dense_transitions as dense_transitions
from kernels.dropout import dropout_ as dropout_
from kernels.fast_align import Alignment as Alignment
from kernels.fast_align import AlignmentModel as AlignmentModel
from kernels.fast_align import AlignOptions as AlignOptions
from kernels.fast_align import fast_align as fast_align
from kernels.fused_attention import AttentionInputs as AttentionInputs
from kernels.fused_attention import fused_attention_ as fused_attention_
from kernels.fused_attention import fused_attention_gradients_ as fused_attention_gradients_
from kernels.lattice import LatticePaths as LatticePaths
from kernels.lattice import lattice_max_marginals as lattice_max_marginals
from kernels.lattice import lattice_n_best as lattice_n_best
from kernels.lattice import lattice_viterbi as lattice_viterbi
from kernels.ngram import NgramModel as NgramModel
from kernels.symmetrize import symmetrize as symmetrize
from kernels.token_scores import token_gradients_ as token_gradients_
from kernels.token_scores import token_scores_ as token_scores_
