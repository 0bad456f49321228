#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>

#include "csrc/ops/ngram/arpa.h"

namespace fewstep {

namespace {

constexpr std::size_t BUFFER = 1 << 20;  // characters written at a time

// A buffered text file.
class Writer {
  public:
    explicit Writer(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
        if (!file_) throw FileError(errno, path_);
    }
    void add(std::string_view text) {
        text_ += text;
        if (text_.size() >= BUFFER) flush();
    }
    void add(float value) {  // the shortest text that reads as the same float
        char digits[32];
        add(std::string_view(digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof(digits), value).ptr - digits)));
    }
    void close() {
        flush();
        if (std::fclose(file_.release()) != 0) throw FileError(errno, path_);
    }

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    void flush() {
        errno = 0;
        if (std::fwrite(text_.data(), 1, text_.size(), file_.get()) != text_.size()) throw FileError(errno ? errno : EIO, path_);
        text_.clear();
    }

    const std::string& path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::string text_;
};

}  // namespace

void write_arpa(const NgramModel& model, const std::string& path) {
    Writer file(path);
    file.add("\\data\\\n");
    for (int n = 1; n <= model.order(); ++n) {
        file.add("ngram " + std::to_string(n) + "=" + std::to_string(model.counts()[n - 1]) + "\n");
    }
    for (int n = 1; n <= model.order(); ++n) {
        file.add("\n\\" + std::to_string(n) + "-grams:\n");
        model.for_each(n, [&](std::span<const std::uint32_t> words, float log_prob, float backoff) {
            file.add(log_prob);
            for (std::size_t i = 0; i < words.size(); ++i) {
                file.add(i ? " " : "\t");
                file.add(model.text(words[i]));
            }
            if (n < model.order()) {
                file.add("\t");
                file.add(backoff);
            }
            file.add("\n");
        });
    }
    file.add("\n\\end\\\n");
    file.close();
}

}  // namespace fewstep
