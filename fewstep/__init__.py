"""The runtime: native networks and searches of every family, n-gram scoring, candidate look-up, shortlists and the system format.

It runs a trained system on a CPU with numpy, sentencepiece, safetensors and the compiled extension, without torch. Importing this
package loads none of them: a name of `__init__.pyi` is imported from its module on first use.
"""

from fewstep.lazy import attach

__getattr__, __all__ = attach(__file__)
