// How the batch is cut, and how buffers are placed.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

#include "codegen/best_fit.h"
#include "ir/shares.h"

using namespace piper;

TEST_CASE("shares are contiguous, differ by at most one sample, and rotate") {
  for (int64_t batch : {1, 7, 16, 23, 64}) {
    for (int64_t mbs = 1; mbs <= std::min<int64_t>(batch, 6); ++mbs) {
      for (int64_t degree = 1; degree <= 5; ++degree) {
        const auto cuts = ir::cut_microbatches(batch, mbs);
        const auto shares = ir::cut_shares(batch, mbs, degree);
        std::vector<int64_t> total(static_cast<size_t>(degree), 0);
        int64_t at = 0;
        for (size_t mb = 0; mb < shares.size(); ++mb) {
          CHECK(shares[mb][0].start == cuts[mb].start);
          int64_t least = batch, most = 0;
          for (size_t d = 0; d < shares[mb].size(); ++d) {
            CHECK(shares[mb][d].start == at);
            at += shares[mb][d].count;
            total[d] += shares[mb][d].count;
            least = std::min(least, shares[mb][d].count);
            most = std::max(most, shares[mb][d].count);
          }
          CHECK(most - least <= 1);
        }
        CHECK(at == batch);
        // Rotation: nobody gets the extra sample of every microbatch.
        CHECK(*std::max_element(total.begin(), total.end()) - *std::min_element(total.begin(), total.end()) <= 1);
      }
    }
  }
}

TEST_CASE("ranks and data indices are inverse, also over two data axes") {
  ir::Mesh mesh;
  mesh.axes = {{"pp", 2, {}}, {"a", 3, {}}, {"one", 1, {}}, {"b", 2, {}}};
  for (int64_t pp = 0; pp < 2; ++pp) {
    ir::Placement p;
    p.fixed = {{0, pp}, {2, 0}};
    CHECK(ir::data_degree(mesh, p) == 6);
    const auto ranks = ir::ranks_of(mesh, p);
    REQUIRE(ranks.size() == 6);
    for (size_t d = 0; d < ranks.size(); ++d) {
      CHECK(ir::rank_at(mesh, p, static_cast<int64_t>(d)) == ranks[d]);
      CHECK(ir::data_index(mesh, p, ranks[d]) == static_cast<int64_t>(d));
    }
  }
}

TEST_CASE("best fit never lets conflicting buffers overlap, and reuses what is free") {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    struct Life {
      int begin, end;
    };
    std::vector<Life> lives;
    std::vector<int64_t> sizes, offsets;
    for (int i = 0; i < 60; ++i) {
      const int begin = static_cast<int>(random() % 100);
      lives.push_back({begin, begin + static_cast<int>(random() % 20)});
      sizes.push_back(static_cast<int64_t>(random() % 1000 + 1));
    }
    const auto conflicts = [&](size_t a, size_t b) { return lives[a].begin <= lives[b].end && lives[b].begin <= lives[a].end; };
    const int64_t used = codegen::best_fit(sizes, conflicts, offsets);
    int64_t sum = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      sum += sizes[i];
      CHECK(offsets[i] + sizes[i] <= used);
      for (size_t j = 0; j < i; ++j) {
        const bool overlap = offsets[i] < offsets[j] + sizes[j] && offsets[j] < offsets[i] + sizes[i];
        if (conflicts(i, j)) CHECK_FALSE(overlap);
      }
    }
    CHECK(used < sum);
  }
}
