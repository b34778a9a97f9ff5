// Atomic publish: whenever the writer dies, there is the previous archive, the new one, or a way back to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "csrc/archive/images.h"
#include "csrc/archive/publish.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/stale.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class Publish : public ::testing::TestWithParam<bool> {  // with or without exchange of names
 protected:
  std::string target() const { return directory_.at("model.fdry"); }
  PublishOptions options() const {
    PublishOptions out;
    out.exchange = GetParam();
    return out;
  }

  // Writes an archive that says `mark` in every one of its files.
  static Result<Published> save(const std::string& target, const std::string& mark, PublishOptions options) {
    FOUNDRY_ASSIGN(Publication publication, Publication::begin(target, std::move(options)));
    FOUNDRY_TRY(fill(publication, mark));
    return publication.publish("{\"mark\": \"" + mark + "\"}");
  }
  static Status fill(Publication& publication, const std::string& mark) {
    FOUNDRY_ASSIGN(const FileDescriptor rank, make_directory_below(publication.directory(), "rank_0"));
    GraphsContent content;
    content.strings.add(mark);
    content.write(publication.directory(), "rank_0/graphs.fdry");
    FOUNDRY_ASSIGN(const StoredImage image, store_image(publication.directory(), bytes_of(mark)));
    return image.bytes > 0 ? success() : Status(Error{});
  }
  // The mark of a whole archive; fails the test where it is not whole. Nothing if there is none.
  std::optional<std::string> archive() const {
    if (!fs::exists(target())) return std::nullopt;
    const FileDescriptor root = must(open_directory(target()));
    const std::string manifest = must(read_text_file(root.get(), kManifestName));
    const std::string mark = manifest.substr(10, manifest.size() - 12);
    const File graphs = must(File::open(root.get(), "rank_0/graphs.fdry", FileKind::graphs));
    const auto strings = graphs.raw_section(Section::graphs_strings);
    EXPECT_TRUE(std::string(reinterpret_cast<const char*>(strings.data()), strings.size()).ends_with(mark));
    EXPECT_TRUE(read_image(root.get(), hash(bytes_of(mark)), mark.size()).ok());
    EXPECT_EQ(must(list_tree(root.get(), "archive")).size(), 5u);
    return mark;
  }
  size_t entries() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_.path())) ++count;
    return count;
  }

  TemporaryDirectory directory_;
};

TEST_P(Publish, AppearsWholeAndLeavesNothingElse) {
  const auto first = save(target(), "one", options());
  ASSERT_TRUE(first.ok()) << first.error().text;
  EXPECT_FALSE(first.value().replaced);
  EXPECT_THAT(first.value().warnings, IsEmpty());
  EXPECT_EQ(archive(), "one");
  const auto second = save(target() + "/", "two", options());
  ASSERT_TRUE(second.ok()) << second.error().text;
  EXPECT_TRUE(second.value().replaced);
  EXPECT_THAT(second.value().warnings, IsEmpty());
  EXPECT_EQ(archive(), "two");
  EXPECT_EQ(entries(), 1u);
}

TEST_P(Publish, AnUnpublishedSaveIsRemoved) {
  ASSERT_TRUE(save(target(), "old", options()).ok());
  {
    Publication publication = must(Publication::begin(target(), options()));
    EXPECT_TRUE(fs::exists(publication.staging_path()));
    EXPECT_THAT(publication.staging_path(), HasSubstr("model.fdry.tmp-" + std::to_string(getpid()) + "-"));
    ASSERT_TRUE(fill(publication, "new").ok());
    Publication moved = std::move(publication);
    EXPECT_TRUE(fs::exists(moved.staging_path()));
  }
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(archive(), "old");
}

TEST_P(Publish, OnlyOnce) {
  Publication publication = must(Publication::begin(target(), options()));
  ASSERT_TRUE(fill(publication, "one").ok());
  EXPECT_FALSE(publication.publish("").ok());
  ASSERT_TRUE(publication.publish("{\"mark\": \"one\"}").ok());
  const auto again = publication.publish("{}");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().kind, ErrorKind::state);
  Publication abandoned = must(Publication::begin(target(), options()));
  ASSERT_TRUE(abandoned.abandon().ok());
  EXPECT_FALSE(abandoned.publish("{}").ok());
  EXPECT_EQ(archive(), "one");
}

TEST_P(Publish, AForkedChildDoesNotTakeTheStagingDirectoryAway) {
  Publication publication = must(Publication::begin(target(), options()));
  const pid_t child = fork();
  if (child == 0) {
    {
      const Publication copy = std::move(publication);
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(publication.staging_path()));
}

TEST_P(Publish, WhoeverDiesLeavesAWholeArchive) {
  for (const bool had_one : {false, true}) {
    for (int step = 0; step <= static_cast<int>(PublishStep::old_removed); ++step) {
      fs::remove_all(target());
      if (had_one) {
        ASSERT_TRUE(save(target(), "old", options()).ok());
      }
      const pid_t child = fork();
      if (child == 0) {
        PublishOptions dying = options();
        dying.on_step = [step](PublishStep at) {
          if (static_cast<int>(at) == step) raise(SIGKILL);
        };
        _exit(save(target(), "new", std::move(dying)).ok() ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      const auto at = static_cast<PublishStep>(step);
      const bool has_step = at != PublishStep::set_aside || (had_one && !GetParam());
      ASSERT_EQ(WIFSIGNALED(status), has_step);
      const std::optional<std::string> before = had_one ? std::optional<std::string>("old") : std::nullopt;
      const bool visible = at >= PublishStep::visible || !has_step;
      const bool away = at == PublishStep::set_aside && has_step;  // the old one waits under another name
      EXPECT_EQ(archive(), visible ? std::optional<std::string>("new")
                           : away  ? std::nullopt
                                   : before)
          << had_one << step;

      const auto stale = must(list_stale(target()));
      for (const Stale& one : stale) {
        EXPECT_EQ(one.pid, child);
        EXPECT_GE(one.bytes, at == PublishStep::staged ? 0u : 100u);
      }
      EXPECT_EQ(stale.size(), entries() - (fs::exists(target()) ? 1 : 0)) << "everything left over is recognised";
      EXPECT_EQ(must(remove_stale(target())).size(), stale.size());
      EXPECT_EQ(archive(), visible ? std::optional<std::string>("new") : before);
      EXPECT_EQ(entries(), archive() ? 1u : 0u);
      EXPECT_THAT(must(list_stale(target())), IsEmpty());
    }
  }
}

TEST_P(Publish, TheNextSavePutsBackWhatADeadOneSetAside) {
  ASSERT_TRUE(save(target(), "old", options()).ok());
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  fs::rename(target(), target() + ".old-" + std::to_string(child) + "-0123456789abcdef");
  Publication publication = must(Publication::begin(target(), options()));
  EXPECT_EQ(archive(), "old");
  ASSERT_TRUE(fill(publication, "new").ok());
  EXPECT_TRUE(publication.publish("{\"mark\": \"new\"}").value().replaced);
  EXPECT_EQ(archive(), "new");
  EXPECT_EQ(entries(), 1u);
}

TEST_P(Publish, OneOfTwoWins) {
  for (const bool had_one : {false, true}) {
    fs::remove_all(target());
    if (had_one) {
      ASSERT_TRUE(save(target(), "old", options()).ok());
    }
    Publication first = must(Publication::begin(target(), options()));
    Publication second = must(Publication::begin(target(), options()));
    ASSERT_TRUE(fill(first, "first").ok());
    ASSERT_TRUE(fill(second, "second").ok());
    ASSERT_TRUE(second.publish("{\"mark\": \"second\"}").ok());
    const auto lost = first.publish("{\"mark\": \"first\"}");
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().kind, ErrorKind::state);
    EXPECT_THAT(lost.error().text, HasSubstr("Another SAVE"));
    EXPECT_EQ(archive(), "second");
    ASSERT_TRUE(first.abandon().ok());
    EXPECT_EQ(entries(), 1u);
  }
}

TEST_P(Publish, AnArchiveThatVanishedMeanwhileIsNotReplaced) {
  ASSERT_TRUE(save(target(), "old", options()).ok());
  Publication publication = must(Publication::begin(target(), options()));
  ASSERT_TRUE(fill(publication, "new").ok());
  fs::remove_all(target());
  EXPECT_FALSE(publication.publish("{\"mark\": \"new\"}").ok());
}

TEST_P(Publish, ExactlyOneOfManyProcessesWins) {
  for (const bool had_one : {false, true}) {
    fs::remove_all(target());
    if (had_one) {
      ASSERT_TRUE(save(target(), "old", options()).ok());
    }
    int go[2], ready[2];
    ASSERT_EQ(pipe(go), 0);
    ASSERT_EQ(pipe(ready), 0);
    constexpr int kProcesses = 8;
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        close(go[1]);
        std::string mark = "p";
        mark += static_cast<char>('0' + i);
        auto publication = Publication::begin(target(), options());
        if (!publication.ok() || !fill(publication.value(), mark).ok()) _exit(9);
        char byte = 'r';
        if (write(ready[1], &byte, 1) != 1) _exit(9);
        if (read(go[0], &byte, 1) != 0) _exit(9);  // returns when the parent closes its end
        const auto published = publication.value().publish("{\"mark\": \"" + mark + "\"}");
        const bool lost = !published.ok() && published.error().kind == ErrorKind::state;
        static_cast<void>(publication.value().abandon().ok());
        _exit(published.ok() ? 1 : lost ? 2 : 3);
      }
      children.push_back(child);
    }
    close(go[0]);
    for (int i = 0; i < kProcesses; ++i) {
      char byte;
      ASSERT_EQ(read(ready[0], &byte, 1), 1);
    }
    close(go[1]);
    int won = 0, lost = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      won += WEXITSTATUS(status) == 1 ? 1 : 0;
      lost += WEXITSTATUS(status) == 2 ? 1 : 0;
    }
    close(ready[0]);
    close(ready[1]);
    EXPECT_EQ(won, 1);
    EXPECT_EQ(lost, kProcesses - 1);
    EXPECT_TRUE(archive().has_value());
    EXPECT_EQ(entries(), 1u);
  }
}

TEST_P(Publish, NothingElseThanAnArchiveIsReplaced) {
  auto refused = [this] {
    const auto begun = Publication::begin(target(), options());
    return !begun.ok() && begun.error().kind == ErrorKind::invalid && entries() == 1;
  };
  fs::create_directory(target());
  write_file(target() + "/thesis.tex", bytes_of("years of work"));
  EXPECT_TRUE(refused());
  fs::remove_all(target());
  write_file(target(), bytes_of("a file"));
  EXPECT_TRUE(refused());
  fs::remove(target());
  fs::create_directory_symlink("/", target());
  EXPECT_TRUE(refused());
  fs::remove(target());
  fs::create_directory(target());
  ASSERT_TRUE(save(target(), "one", options()).ok()) << "an empty directory may be replaced";
  EXPECT_EQ(archive(), "one");
  for (const std::string& path :
       {std::string(), std::string("/"), directory_.at(".."), directory_.at("missing/archive")}) {
    EXPECT_FALSE(Publication::begin(path, options()).ok()) << path;
  }
}

TEST_P(Publish, LinksAndLeftoversDoNotGetIntoAnArchive) {
  Publication publication = must(Publication::begin(target(), options()));
  ASSERT_TRUE(fill(publication, "one").ok());
  write_file(publication.staging_path() + "/images/abc.tmp-1-0123456789abcdef", bytes_of("half an image"));
  fs::create_symlink("/etc/passwd", publication.staging_path() + "/link");
  const auto refused = publication.publish("{\"mark\": \"one\"}");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().text, HasSubstr("link"));
  fs::remove(publication.staging_path() + "/link");
  const auto published = publication.publish("{\"mark\": \"one\"}");
  ASSERT_TRUE(published.ok()) << published.error().text;
  EXPECT_EQ(archive(), "one") << "and it has five entries";
}

TEST_P(Publish, StagingOfLiveProcessesIsNotStale) {
  const Publication own = must(Publication::begin(target(), options()));
  EXPECT_THAT(must(list_stale(target())), IsEmpty());
  // The process is gone, but somebody holds the directory: a process of another pid namespace looks like this.
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const std::string foreign = target() + ".tmp-" + std::to_string(child) + "-0123456789abcdef";
  fs::create_directory(foreign);
  FileDescriptor held = must(open_directory(foreign));
  ASSERT_EQ(flock(held.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(must(list_stale(target())), IsEmpty());
  held.reset();
  EXPECT_EQ(must(list_stale(target())).size(), 1u);
  fs::create_directory(directory_.at("model.fdry.tmp-notes"));  // somebody else's
  fs::create_directory(directory_.at("model2.fdry.tmp-1-0123456789abcdef"));
  EXPECT_EQ(must(remove_stale(target())).size(), 1u);
  EXPECT_TRUE(fs::exists(directory_.at("model.fdry.tmp-notes")));
  EXPECT_TRUE(fs::exists(own.staging_path()));
}

TEST_P(Publish, ReadersOfTheOldArchiveAreNotDisturbed) {
  ASSERT_TRUE(save(target(), "old", options()).ok());
  const FileDescriptor root = must(open_directory(target()));
  const File file = must(File::open(root.get(), "rank_0/graphs.fdry", FileKind::graphs));
  ASSERT_TRUE(save(target(), "new", options()).ok());
  EXPECT_EQ(file.view(file.section<Section::graphs>()[0].name), "decode/1");
}

// From here on this process gets no random number from the system.
bool deny_random_numbers() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_P(Publish, WithoutRandomNumbersNothingBegins) {
  EXPECT_EXIT(
      {
        if (!deny_random_numbers()) _exit(2);
        const auto begun = Publication::begin(target(), options());
        fprintf(stderr, "%s", begun.ok() ? "it began" : begun.error().text.c_str());
        _exit(begun.ok() || begun.error().kind != ErrorKind::io);
      },
      ::testing::ExitedWithCode(0), "no random number .* of model.fdry: Function not implemented");
  EXPECT_EQ(entries(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Exchange, Publish, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Exchange" : "TwoRenames"; });

}  // namespace
}  // namespace foundry::archive::test
