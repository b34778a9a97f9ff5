// Files of an archive: no link is followed, images are what their name says, the inventory lists everything.
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "csrc/archive/images.h"
#include "csrc/archive/inventory.h"
#include "csrc/archive/reader.h"
#include "csrc/archive/temporary.h"
#include "tests/unit/archive/support.h"

namespace foundry::archive::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Files : public ::testing::Test {
 protected:
  void link(const std::string& target, const std::string& name) {
    ASSERT_EQ(symlink(target.c_str(), directory_.at(name).c_str()), 0);
  }
  TemporaryDirectory directory_;
};

TEST_F(Files, NamesThatLeaveTheArchiveAreRefused) {
  for (const std::string name : {"", "/etc/passwd", "../x", "a/../b", "./a", "a//b", "a/", "..", "."}) {
    const auto opened = open_file_below(directory_.fd(), name);
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.error().kind, ErrorKind::invalid) << name;
  }
  EXPECT_FALSE(open_file_below(directory_.fd(), std::string("a\0b", 3)).ok());
}

TEST_F(Files, NoLinkIsFollowed) {
  TemporaryDirectory elsewhere;
  GraphsContent().write(elsewhere.fd(), "graphs.fdry");
  link(elsewhere.path(), "rank_0");
  link(elsewhere.at("graphs.fdry"), "graphs.fdry");
  link("nowhere", "dangling");
  for (const char* name : {"rank_0/graphs.fdry", "graphs.fdry", "dangling"}) {
    const auto file = File::open(directory_.fd(), name, FileKind::graphs);
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_THAT(file.error().text, HasSubstr("symbolic link"));
    EXPECT_FALSE(read_text_file(directory_.fd(), name).ok());
    EXPECT_FALSE(describe_file(directory_.fd(), name).ok());
  }
  EXPECT_FALSE(write_new_file(directory_.fd(), "dangling", bytes_of("x")).ok());
  EXPECT_FALSE(write_new_file(directory_.fd(), "rank_0/new", bytes_of("x")).ok());
  EXPECT_FALSE(make_directory_below(directory_.fd(), "rank_0").ok());
  EXPECT_FALSE(inventory(directory_.fd(), "archive").ok());
  EXPECT_FALSE(trust_warnings(directory_.fd(), "archive").ok());

  ASSERT_EQ(rename(directory_.at("rank_0").c_str(), directory_.at(kImagesDirectory).c_str()), 0);
  EXPECT_FALSE(store_image(directory_.fd(), bytes_of("image")).ok()) << "images/ leads out of the archive";
  // The archive itself may be reached through a link.
  link(".", "self");
  EXPECT_TRUE(open_directory(directory_.at("self")).ok());
}

TEST_F(Files, OtherThingsThanRegularFilesAreRefused) {
  ASSERT_EQ(mkfifo(directory_.at("fifo").c_str(), 0600), 0);
  const auto fifo = open_file_below(directory_.fd(), "fifo");  // must not block either
  ASSERT_FALSE(fifo.ok());
  EXPECT_THAT(fifo.error().text, HasSubstr("not a regular file"));
  ASSERT_EQ(mkdir(directory_.at("d").c_str(), 0700), 0);
  EXPECT_FALSE(open_file_below(directory_.fd(), "d").ok());
  EXPECT_FALSE(inventory(directory_.fd(), "archive").ok());
  const auto missing = open_file_below(directory_.fd(), "missing/graphs.fdry");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind, ErrorKind::io);
  EXPECT_EQ(missing.error().code, ENOENT);
}

TEST_F(Files, TextFilesHaveALimit) {
  ASSERT_TRUE(write_new_file(directory_.fd(), "foundry.json", bytes_of("{\"a\": 1}")).ok());
  EXPECT_EQ(must(read_text_file(directory_.fd(), "foundry.json")), "{\"a\": 1}");
  EXPECT_FALSE(read_text_file(directory_.fd(), "foundry.json", 4).ok());
  EXPECT_FALSE(write_new_file(directory_.fd(), "foundry.json", bytes_of("again")).ok());
}

TEST_F(Files, TreesAreRemovedWithoutFollowingLinks) {
  TemporaryDirectory elsewhere;
  write_file(elsewhere.at("precious"), bytes_of("data"));
  std::filesystem::create_directories(directory_.at("t/a/b"));
  write_file(directory_.at("t/a/b/f"), bytes_of("x"));
  link(elsewhere.path(), "t/a/link");
  ASSERT_TRUE(remove_tree(directory_.fd(), "t").ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.at("t")));
  EXPECT_TRUE(std::filesystem::exists(elsewhere.at("precious")));
  EXPECT_TRUE(remove_tree(directory_.fd(), "t").ok()) << "already gone";
}

TEST_F(Files, DeepOrLargeTreesAreNoArchives) {
  std::filesystem::create_directories(directory_.at("1/2/3/4/5/6/7/8/9/10"));
  EXPECT_FALSE(list_tree(directory_.fd(), "archive").ok());
  TemporaryDirectory wide;
  for (int i = 0; i < 5; ++i) write_file(wide.at(std::to_string(i)), {});
  EXPECT_EQ(must(list_tree(wide.fd(), "archive", 5)).size(), 5u);
  EXPECT_FALSE(list_tree(wide.fd(), "archive", 4).ok());
}

TEST_F(Files, TrustWarningsNameWhatEverybodyCanWrite) {
  ASSERT_EQ(mkdir(directory_.at("a").c_str(), 0755), 0);
  TemporaryDirectory outer;
  std::filesystem::create_directories(outer.at("archive/rank_0"));
  write_file(outer.at("archive/rank_0/graphs.fdry"), bytes_of("x"));
  const auto archive = must(open_directory(outer.at("archive")));
  EXPECT_THAT(must(trust_warnings(archive.get(), "archive")), IsEmpty());
  ASSERT_EQ(chmod(outer.at("archive/rank_0/graphs.fdry").c_str(), 0666), 0);
  EXPECT_THAT(must(trust_warnings(archive.get(), "archive")), ElementsAre(HasSubstr("rank_0/graphs.fdry")));
  ASSERT_EQ(chmod(outer.path().c_str(), 0777), 0);
  EXPECT_THAT(must(trust_warnings(archive.get(), "archive")), Contains(HasSubstr("replace the archive")));
  ASSERT_EQ(chmod(outer.path().c_str(), 01777), 0);
  EXPECT_EQ(must(trust_warnings(archive.get(), "archive")).size(), 1u) << "a sticky directory protects its entries";
  // Only a privileged process can give a file away, and not to a user that its namespace (a sandbox) does not map.
  if (chown(outer.at("archive/rank_0").c_str(), 12345, static_cast<gid_t>(-1)) == 0) {
    EXPECT_THAT(must(trust_warnings(archive.get(), "archive")), Contains(HasSubstr("uid 12345")));
  } else {
    EXPECT_TRUE(errno == EPERM || errno == EINVAL) << errno;
  }
}

TEST_F(Files, ImagesAreStoredOnceAndChecked) {
  const StoredImage first = must(store_image(directory_.fd(), bytes_of(".version 9.0")));
  EXPECT_FALSE(first.existed);
  EXPECT_EQ(first.bytes, 12u);
  const StoredImage again = must(store_image(directory_.fd(), bytes_of(".version 9.0")));
  EXPECT_TRUE(again.existed);
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(must(list_tree(directory_.fd(), "archive")).size(), 2u) << "images/ and one file, nothing temporary";
  const PrivateMemory read = must(read_image(directory_.fd(), first.hash, 12));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.bytes().data())), ".version 9.0") << "a zero byte follows";
  EXPECT_FALSE(read_image(directory_.fd(), first.hash, 11).ok());
  EXPECT_FALSE(read_image(directory_.fd(), hash(bytes_of("other")), 12).ok());
  EXPECT_FALSE(store_image(directory_.fd(), {}).ok());

  write_file(directory_.at(image_file_name(first.hash)), bytes_of(".version 9.1"));
  const auto damaged = read_image(directory_.fd(), first.hash, 12);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().kind, ErrorKind::corrupt);
  EXPECT_THAT(damaged.error().text, HasSubstr(hex(first.hash)));
  EXPECT_FALSE(store_image(directory_.fd(), bytes_of(".version 9.0")).ok()) << "other content under this name";
  EXPECT_FALSE(describe_file(directory_.fd(), image_file_name(first.hash)).ok());
}

TEST_F(Files, AnImageOfWholePagesIsFollowedByAZero) {
  const std::string page(static_cast<size_t>(sysconf(_SC_PAGESIZE)), 'p');
  const StoredImage stored = must(store_image(directory_.fd(), bytes_of(page)));
  const PrivateMemory read = must(read_image(directory_.fd(), stored.hash, page.size()));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.bytes().data())), page);
}

TEST_F(Files, ManyProcessesStoreOneImage) {
  std::vector<pid_t> children;
  const std::string image(1 << 20, 'i');
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(store_image(directory_.fd(), bytes_of(image)).ok() ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(must(list_tree(directory_.fd(), "archive")).size(), 2u);
  EXPECT_TRUE(read_image(directory_.fd(), hash(bytes_of(image)), image.size()).ok());
}

TEST_F(Files, InventoryListsEveryFileWithItsIdentity) {
  must(make_directory_below(directory_.fd(), "rank_0"));
  const WrittenFile graphs = GraphsContent().write(directory_.fd(), "rank_0/graphs.fdry");
  const WrittenFile memory = MemoryContent().write(directory_.fd(), "rank_0/memory.fdry");
  const StoredImage image = must(store_image(directory_.fd(), bytes_of("code")));
  ASSERT_TRUE(write_new_file(directory_.fd(), "notes.txt", bytes_of("by hand")).ok());
  ASSERT_TRUE(write_new_file(directory_.fd(), "foundry.json", bytes_of("{}")).ok());
  const auto list = must(inventory(directory_.fd(), "archive"));
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].name, image_file_name(image.hash));
  EXPECT_EQ(list[0].type, "image");
  EXPECT_EQ(list[0].bytes, 4u);
  EXPECT_EQ(list[0].hash, image.hash);
  EXPECT_EQ(list[1].name, "notes.txt");
  EXPECT_EQ(list[1].type, "other");
  EXPECT_EQ(list[1].hash, hash(bytes_of("by hand")));
  EXPECT_EQ(list[2].type, "graphs");
  EXPECT_EQ(list[2].bytes, graphs.bytes);
  EXPECT_EQ(list[2].hash, graphs.identity);
  EXPECT_EQ(list[3].type, "memory");
  EXPECT_EQ(list[3].hash, memory.identity);

  std::vector<std::byte> bytes = read_file(directory_.at("rank_0/memory.fdry"));
  bytes[bytes.size() / 2] ^= std::byte{1};
  write_file(directory_.at("rank_0/memory.fdry"), bytes);
  EXPECT_FALSE(inventory(directory_.fd(), "archive").ok());
}

TEST(Temporary, NamesTellTheirProcess) {
  const std::string name = must(temporary_name("archive"));
  EXPECT_EQ(temporary_owner(name, "archive", kTemporaryMark), getpid());
  EXPECT_NE(name, must(temporary_name("archive")));
  EXPECT_EQ(temporary_owner(name, "archive", kSetAsideMark), std::nullopt);
  EXPECT_EQ(temporary_owner(name, "other", kTemporaryMark), std::nullopt);
  for (const char* bad : {"archive", "archive.tmp-", "archive.tmp-12", "archive.tmp-12-", "archive.tmp-12-xyz",
                          "archive.tmp--0123456789abcdef", "archive.tmp-0-0123456789abcdef",
                          "archive.tmp-1x-0123456789abcdef", "archive.tmp-99999999999999-0123456789abcdef"}) {
    EXPECT_EQ(temporary_owner(bad, "archive", kTemporaryMark), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace foundry::archive::test
