#include "frontend/piper/big_stack.h"

#include <pthread.h>

#include <exception>

namespace piper::frontend {

namespace {

constexpr size_t kStackBytes = size_t{256} << 20;  // address space; pages are touched when they are used

struct Job {
  const std::function<void()>* work;
  std::exception_ptr thrown;
};

void* run(void* argument) {
  Job* job = static_cast<Job*>(argument);
  try {
    (*job->work)();
  } catch (...) {
    job->thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void run_on_big_stack(const std::function<void()>& work) {
  Job job{&work, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  bool started = pthread_create(&thread, &attributes, run, &job) == 0;
  pthread_attr_destroy(&attributes);
  if (started) {
    pthread_join(thread, nullptr);
  } else {
    run(&job);  // where address space is short, the caller's stack has to do
  }
  if (job.thrown) std::rethrow_exception(job.thrown);
}

}  // namespace piper::frontend
