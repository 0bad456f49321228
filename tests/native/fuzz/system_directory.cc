// Fuzzer of the loader of system directories, which is Python: it runs in this process, and lines of fewstep/ count as coverage.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// libFuzzer takes each counter of this section for a piece of code.
__attribute__((section("__libfuzzer_extra_counters"))) static std::uint8_t counters[1 << 16];
static PyObject* trial = nullptr;

// Count steps between two lines of the package. A number for the file comes from its name.
static int trace(PyObject*, PyFrameObject* frame, int event, PyObject*) {
    static thread_local std::uint32_t last = 0;
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* name = PyUnicode_AsUTF8(code->co_filename);
    const bool ours = name != nullptr && std::strstr(name, "/fewstep/") != nullptr && std::strstr(name, "/tests/") == nullptr;
    if (!ours) PyObject_SetAttrString(reinterpret_cast<PyObject*>(frame), "f_trace_lines", Py_False);
    if (ours && event == PyTrace_LINE) {
        std::uint32_t here = 2166136261u;
        for (const char* letter = name; *letter != 0; ++letter) here = (here ^ static_cast<std::uint8_t>(*letter)) * 16777619u;
        here = (here ^ static_cast<std::uint32_t>(PyFrame_GetLineNumber(frame))) * 16777619u;
        std::uint8_t& counter = counters[((here >> 8) ^ (last >> 1)) % sizeof counters];
        counter += counter != 255;
        last = here >> 8;
    }
    Py_DECREF(code);
    return 0;
}

static void require(const void* found) {
    if (found != nullptr) return;
    PyErr_Print();
    std::abort();
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;
    PyConfig_SetBytesString(&config, &config.program_name, std::getenv("FUZZED_PYTHON"));
    if (PyStatus_Exception(Py_InitializeFromConfig(&config))) std::abort();
    PyConfig_Clear(&config);
    PyObject* module = PyImport_ImportModule("tests.native.fuzz.system_directory");
    require(module);
    trial = PyObject_GetAttrString(module, "trial");
    require(trial);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    PyEval_SetTrace(trace, nullptr);
    PyObject* done = PyObject_CallFunction(trial, "y#", reinterpret_cast<const char*>(data), static_cast<Py_ssize_t>(size));
    PyEval_SetTrace(nullptr, nullptr);
    require(done);
    Py_DECREF(done);
    return 0;
}
