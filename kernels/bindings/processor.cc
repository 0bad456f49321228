// The module `fewstep_native._processor`, which is loaded before a level is chosen: plain C API, compiled for the baseline.
#include "csrc/base/processor.h"

#include <Python.h>

namespace {

PyObject* levels(PyObject*, PyObject*) {
    const auto names = fewstep::processor_levels();
    PyObject* found = PyTuple_New(static_cast<Py_ssize_t>(names.size()));
    for (std::size_t index = 0; found != nullptr && index < names.size(); ++index) {
        PyObject* name = PyUnicode_FromString(names[index].c_str());
        if (name == nullptr)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, static_cast<Py_ssize_t>(index), name);
    }
    return found;
}

PyObject* architecture(PyObject*, PyObject*) { return PyUnicode_FromString(FEWSTEP_ALL_LEVELS); }

PyMethodDef methods[] = {{"levels", levels, METH_NOARGS, "Return the levels that this processor runs, lowest first."},
                         {"architecture", architecture, METH_NOARGS, "Return all levels of the architecture, between commas."},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_processor", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__processor() { return PyModule_Create(&definition); }
