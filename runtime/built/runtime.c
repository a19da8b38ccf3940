/* The runtime of programs that `populus build` made: maps their data, adds addresses to their words, and walks their steps.
 *
 * The walk over the steps is the native engine's own machine code (engine/native/run/step_loop.py): it returns at steps that move
 * arrays of the caller, and at the end. The file's layout is that of form.py. A generated file lists the kernels of one model. */
#define _GNU_SOURCE
#include "populus.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cpu.h"

#define API __attribute__((visibility("default")))
#define HEAD 256 /* bytes of the file before its words */
#define TEXT 320
#define MOST_THREADS 250
#define WINDOW (2 << 20) /* bytes that are looked up in the system's cache of files at once */
#define FEW 512 /* such windows: of larger data a run may read few, such as rows of a table, and maps what it reads */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; an older one refuses it */
#endif

typedef struct { int64_t name, shape, type, rank, bytes, place, kept; } record; /* offsets in the file; `kept`: the type in memory */
typedef struct {
  uint64_t magic, version, id[2];
  int64_t machine, features, size;
  uint64_t sums[2];
  int64_t steps, words, relocs, memory, counts[3], at_words, at_relocs, at_tensors, at_texts, texts, at_data, shared, kernels;
} head;

#pragma GCC visibility push(hidden)
extern void (*const populus_kernels[])(void);
extern int64_t (*const populus_walk)(int64_t *steps, int64_t *state, int64_t first, int64_t budget);
extern void (*const populus_worker)(int64_t *state, int64_t ticket);
extern void (*const populus_sums)(const void *data, int64_t rows, uint64_t *sums);
extern const uint64_t populus_identity[2];
extern const char populus_file[]; /* its name when it was built */
extern const unsigned char populus_data[] __attribute__((weak)); /* there if the data are inside the library */
#pragma GCC visibility pop

struct populus_model {
  const head *h;
  const unsigned char *data;
  size_t mapped; /* bytes to unmap; 0 if the data are inside the library */
  populus_tensor *tensors;
};

struct populus_session {
  const populus_model *model;
  unsigned char *memory;
  int64_t *words;
  int threads, started;
  pid_t process; /* a forked child has no threads of its parent */
  pthread_t *ids;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int64_t ticket;
  char text[TEXT];
  _Alignas(128) _Atomic int64_t state[64]; /* of the walk that threads share */
};

enum { TICKET = 32, YIELD = 48, THREADS }; /* words of the state; these and the kinds of steps as in steps.py */
enum { IN = 16, OUT };

static __thread char opening[TEXT];

static populus_status fail(char *to, populus_status code, const char *form, ...) {
  va_list list;
  va_start(list, form);
  vsnprintf(to, TEXT, form, list);
  va_end(list);
  return code;
}

/* -- models -------------------------------------------------------------------------------------------------------- */

static uint64_t folded(const uint64_t *columns) {
  uint64_t found = 0;
  for (int j = 0; j < 8; j++) {
    found = (found ^ columns[j]) * 0xbf58476d1ce4e5b9u;
    found ^= found >> 31;
  }
  return found;
}

static int beside(char *path, size_t most) { /* the file of data beside this library */
  Dl_info found;
  if (!dladdr((void *)beside, &found) || !found.dli_fname) return 0;
  const char *slash = strrchr(found.dli_fname, '/');
  int bytes = slash ? (int)(slash - found.dli_fname) + 1 : 0;
  return snprintf(path, most, "%.*s%s", bytes, found.dli_fname, populus_file) < (int)most;
}

static populus_status map(const char *path, populus_model *m) {
  struct stat st;
  int f = open(path, O_RDONLY | O_CLOEXEC);
  if (f < 0 || fstat(f, &st)) {
    if (f >= 0) close(f);
    return fail(opening, POPULUS_FILE, "%s: cannot be read", path);
  }
  if (!S_ISREG(st.st_mode) || st.st_size < HEAD) {
    close(f);
    return fail(opening, POPULUS_FORMAT, "%s: is not a program's data", path);
  }
  void *found = mmap(0, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f, 0);
  close(f);
  if (found == MAP_FAILED) return fail(opening, POPULUS_FILE, "%s: cannot be mapped", path);
  m->data = found;
  m->mapped = (size_t)st.st_size;
  return POPULUS_OK;
}

/* Maps constants that the system's cache of files has, at once. A run that maps them page by page while its kernels prefetch
 * takes half as long again. What is not in the cache stays on the disk until it is read. */
static void ready(const populus_model *m) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)m->data + (uintptr_t)m->h->size;
  uintptr_t at = ((uintptr_t)m->data + (uintptr_t)m->h->at_data) & -page;
  unsigned char there[WINDOW / 4096];
  if (page < 4096 || (end - at) / WINDOW > FEW) return;
  for (; at < end; at += WINDOW) {
    size_t bytes = end - at < WINDOW ? end - at : WINDOW, pages = (bytes + page - 1) / page, known = 0;
    if (mincore((void *)at, bytes, there)) return;
    while (known < pages && there[known] & 1) known++;
    if (known == pages && madvise((void *)at, bytes, MADV_POPULATE_READ)) return;
  }
}

/* Tells whether every byte of the file is as it was written. Of larger data, only what a run reads stays mapped. */
static int whole(const populus_model *m) {
  head front[HEAD / sizeof(head) + 1] = {0};
  memcpy(front, m->data, HEAD);
  memset(front->sums, 0, sizeof front->sums);
  size_t size = (size_t)m->h->size;
  uint64_t sums[16] = {0}; /* of its words in 8 columns, and of those sums after each row */
  populus_sums(front, HEAD / 64, sums);
  for (size_t at = 0; at < size; at += WINDOW) {
    size_t begin = at ? at : HEAD, end = at + WINDOW < size ? at + WINDOW : size;
    populus_sums(m->data + begin, (int64_t)(end - begin) / 64, sums);
    if (m->mapped && size / WINDOW > FEW) madvise((void *)(m->data + at), end - at, MADV_DONTNEED);
  }
  return folded(sums) == m->h->sums[0] && folded(sums + 8) == m->h->sums[1];
}

static populus_status check(const populus_model *m, const char *path) {
  const head *h = m->h;
  if (h->magic != 0x0073756c75706f70u || h->version != 2) return fail(opening, POPULUS_FORMAT, "%s: is not a program's data", path);
  if (h->machine != MACHINE) return fail(opening, POPULUS_CPU, "%s: was made for another kind of CPU", path);
  if (memcmp(h->id, populus_identity, sizeof h->id))
    return fail(opening, POPULUS_FORMAT, "%s: is the data of another library; both come from one populus build", path);
  if (m->mapped && h->size != (int64_t)m->mapped)
    return fail(opening, POPULUS_FORMAT, "%s: has %lld bytes instead of %lld; it was cut or changed", path, (long long)m->mapped, (long long)h->size);
  if (h->at_data < HEAD || h->at_data > h->size || h->size % 64) return fail(opening, POPULUS_FORMAT, "%s: is damaged", path);
  const char *name = lacking(h->features); /* before any code that was made for that CPU runs */
  if (name) return fail(opening, POPULUS_CPU, "%s: was built for a CPU with %s, which this one lacks", path, name);
  ready(m);
  return whole(m) ? POPULUS_OK : fail(opening, POPULUS_FORMAT, "%s: is damaged", path);
}

API uint32_t populus_version(void) { return POPULUS_VERSION; }

API populus_status populus_load(const char *path, populus_model **model) {
  char own[4096];
  if (!model) return fail(opening, POPULUS_ARGUMENT, "populus_load: no place for the model");
  *model = 0;
  populus_model *m = calloc(1, sizeof *m);
  if (!m) return fail(opening, POPULUS_MEMORY, "no memory");
  populus_status why = POPULUS_OK;
  if (!path && populus_data) {
    m->data = populus_data;
    path = "the data in the library";
  } else {
    if (!path) path = beside(own, sizeof own) ? own : populus_file;
    why = map(path, m);
  }
  m->h = (const head *)m->data;
  if (!why) why = check(m, path);
  if (!why) {
    size_t n = (size_t)(m->h->counts[0] + m->h->counts[1] + m->h->counts[2]);
    const record *r = (const record *)(m->data + m->h->at_tensors);
    if (!(m->tensors = calloc(n + 1, sizeof *m->tensors))) why = fail(opening, POPULUS_MEMORY, "no memory");
    for (size_t i = 0; !why && i < n; i++)
      m->tensors[i] = (populus_tensor){(const char *)m->data + r[i].name, (populus_type)r[i].type, (int32_t)r[i].rank,
                                       (const int64_t *)(m->data + r[i].shape), (size_t)r[i].bytes};
  }
  if (why) populus_unload(m);
  else *model = m;
  return why;
}

API void populus_unload(populus_model *m) {
  if (!m) return;
  if (m->mapped) munmap((void *)m->data, m->mapped);
  free(m->tensors);
  free(m);
}

static size_t before(const populus_model *m, populus_role role) { /* number of tensors before those of a role */
  size_t n = 0;
  for (int i = 0; i < (int)role; i++) n += (size_t)m->h->counts[i];
  return n;
}

API size_t populus_count(const populus_model *m, populus_role role) {
  return m && (unsigned)role < 3 ? (size_t)m->h->counts[role] : 0;
}

API const populus_tensor *populus_describe(const populus_model *m, populus_role role, size_t i) {
  return i < populus_count(m, role) ? m->tensors + before(m, role) + i : 0;
}

/* -- sessions ------------------------------------------------------------------------------------------------------ */

static void bind(populus_session *s) { /* adds addresses to the words */
  const head *h = s->model->h;
  const uint32_t *r = (const uint32_t *)(s->model->data + h->at_relocs);
  memcpy(s->words, s->model->data + h->at_words, (size_t)h->words * 8);
  for (int64_t i = 0; i < h->relocs; i++) {
    int64_t *w = s->words + (r[i] >> 2);
    switch (r[i] & 3) {
      case 0: *w = (int64_t)populus_kernels[*w]; break;
      case 1: *w += (int64_t)s->model->data; break;
      case 2: *w += (int64_t)s->memory; break;
      default: *w += (int64_t)s->words;
    }
  }
}

static int cpus(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
  return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}

API populus_status populus_open(const populus_model *m, int threads, populus_session **session) {
  if (!m || !session) return fail(opening, POPULUS_ARGUMENT, "populus_open: no %s", m ? "place for the session" : "model");
  *session = 0;
  if (threads < 0 || threads > MOST_THREADS)
    return fail(opening, POPULUS_ARGUMENT, "populus_open: %d threads; a session has 1 to %d, or 0 for all CPUs", threads, MOST_THREADS);
  populus_session *s;
  if (posix_memalign((void **)&s, 128, sizeof *s)) return fail(opening, POPULUS_MEMORY, "no memory");
  memset(s, 0, sizeof *s);
  pthread_mutex_init(&s->lock, 0);
  pthread_cond_init(&s->wake, 0);
  atomic_store(&s->state[YIELD], (int64_t)sched_yield);
  s->model = m;
  s->threads = threads ? threads : cpus();
  atomic_store(&s->state[THREADS], s->threads);
  void *words, *memory = mmap(0, (size_t)m->h->memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  s->memory = memory == MAP_FAILED ? 0 : memory;
  if (!s->memory || posix_memalign(&words, 64, (size_t)m->h->words * 8 + 8)) {
    populus_close(s);
    return fail(opening, POPULUS_MEMORY, "no memory for %lld bytes of variables", (long long)m->h->memory);
  }
  s->words = words;
#ifdef MADV_HUGEPAGE
  madvise(s->memory, (size_t)m->h->memory, MADV_HUGEPAGE);
#endif
  bind(s);
  *session = s;
  return POPULUS_OK;
}

API void populus_close(populus_session *s) {
  if (!s) return;
  if (!s->started || s->process == getpid()) {
    pthread_mutex_lock(&s->lock);
    s->ticket = -1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->started; i++) pthread_join(s->ids[i], 0);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
  }
  if (s->memory) munmap(s->memory, (size_t)s->model->h->memory);
  free(s->ids);
  free(s->words);
  free(s);
}

API const char *populus_error(const populus_session *s) { return s ? s->text : opening; }

/* -- threads ------------------------------------------------------------------------------------------------------- */

static void *worker(void *given) {
  populus_session *s = given;
  int64_t seen = 0;
  for (;;) {
    pthread_mutex_lock(&s->lock);
    while (s->ticket == seen) pthread_cond_wait(&s->wake, &s->lock);
    seen = s->ticket;
    pthread_mutex_unlock(&s->lock);
    if (seen < 0) return 0;
    populus_worker((int64_t *)s->state, seen);
  }
}

static int woken(populus_session *s) { /* starts threads at the first run; tells whether there are any for this one */
  if (s->threads == 1 || !s->model->h->shared) return 0;
  if (!s->ids) s->process = getpid();
  if (!s->ids && (s->ids = calloc((size_t)s->threads, sizeof *s->ids)))
    while (s->started < s->threads - 1 && !pthread_create(s->ids + s->started, 0, worker, s)) s->started++;
  if (!s->started || s->process != getpid()) return 0;
  pthread_mutex_lock(&s->lock);
  s->ticket++;
  atomic_store(&s->state[TICKET], s->ticket);
  pthread_cond_broadcast(&s->wake);
  pthread_mutex_unlock(&s->lock);
  return 1;
}

/* -- elements ------------------------------------------------------------------------------------------------------ */

static int64_t bytes_of(int64_t type) {
  switch (type) {
    case POPULUS_FLOAT32: case POPULUS_INT32: case POPULUS_UINT32: return 4;
    case POPULUS_INT64: case POPULUS_UINT64: case POPULUS_FLOAT64: return 8;
    case POPULUS_UINT16: case POPULUS_INT16: case POPULUS_FLOAT16: case POPULUS_BFLOAT16: return 2;
    default: return 1;
  }
}

#define EACH(SOURCE, TARGET, LOST)                                            \
  for (int64_t i = 0; i < n; i++) {                                           \
    SOURCE a;                                                                 \
    memcpy(&a, (const char *)from + i * (int64_t)sizeof a, sizeof a);         \
    TARGET b = (TARGET)a;                                                     \
    if (LOST) return 1;                                                       \
    memcpy((char *)to + i * (int64_t)sizeof b, &b, sizeof b);                 \
  }                                                                           \
  return 0;

static int move(void *to, int64_t wanted, const void *from, int64_t given, int64_t n) { /* 1: a value that `wanted` cannot hold */
  if (wanted == given) {
    memcpy(to, from, (size_t)(n * bytes_of(given)));
    return 0;
  }
  switch (given * 64 + wanted) {
    case POPULUS_INT64 * 64 + POPULUS_INT32: EACH(int64_t, int32_t, (int64_t)b != a)
    case POPULUS_UINT64 * 64 + POPULUS_UINT32: EACH(uint64_t, uint32_t, (uint64_t)b != a)
    case POPULUS_FLOAT64 * 64 + POPULUS_FLOAT32: EACH(double, float, isfinite(a) && !isfinite(b))
    case POPULUS_INT32 * 64 + POPULUS_INT64: EACH(int32_t, int64_t, 0)
    case POPULUS_UINT32 * 64 + POPULUS_UINT64: EACH(uint32_t, uint64_t, 0)
    case POPULUS_FLOAT32 * 64 + POPULUS_FLOAT64: EACH(float, double, 0)
    default: return 1; /* not built */
  }
}

/* -- a run --------------------------------------------------------------------------------------------------------- */

static populus_status refused(populus_session *s, int64_t step) { /* the file has a text for each step that may refuse */
  const int64_t *texts = (const int64_t *)(s->model->data + s->model->h->at_texts);
  for (int64_t i = 0; i < s->model->h->texts; i++)
    if (texts[2 * i] == step) return fail(s->text, POPULUS_VALUE, "%s", (const char *)s->model->data + texts[2 * i + 1]);
  return fail(s->text, POPULUS_VALUE, "step %lld refused a value", (long long)step);
}

static populus_status walk(populus_session *s, const populus_array *in, const populus_array *out, int threads) {
  for (int64_t step = 0;; step++) {
    int64_t came = populus_walk(s->words, threads ? (int64_t *)s->state : 0, step, INT64_MAX), *r;
    step = came >> 2;
    r = s->words + 8 * step;
    if (came & 3) return refused(s, step);
    if (r[0] == IN && move((void *)r[2], r[5], in[r[1]].data, r[4], r[3]))
      return fail(s->text, POPULUS_VALUE, "input '%s' has a value that the program cannot hold; it was built for narrower types",
                  populus_describe(s->model, POPULUS_INPUT, (size_t)r[1])->name);
    if (r[0] == OUT) move(out[r[1]].data, r[5], (void *)r[2], r[4], r[3]);
    else if (r[0] != IN) return POPULUS_OK;
  }
}

static populus_status fits(populus_session *s, const populus_array *a, populus_role role, size_t i) {
  static const char *const names[] = {"input", "output", "state"};
  const populus_tensor *t = populus_describe(s->model, role, i);
  if (a->type != t->type)
    return fail(s->text, POPULUS_ARGUMENT, "%s '%s' has type %d; given is %d", names[role], t->name, (int)t->type, (int)a->type);
  if (a->rank != t->rank)
    return fail(s->text, POPULUS_ARGUMENT, "%s '%s' has %d dimensions; given are %d", names[role], t->name, (int)t->rank, (int)a->rank);
  for (int32_t d = 0; d < t->rank; d++)
    if (!a->shape || a->shape[d] != t->shape[d])
      return fail(s->text, POPULUS_ARGUMENT, "%s '%s' has size %lld in dimension %d; given is %lld", names[role], t->name,
                  (long long)t->shape[d], (int)d, a->shape ? (long long)a->shape[d] : -1);
  if (!a->data && t->bytes) return fail(s->text, POPULUS_ARGUMENT, "%s '%s' has no data", names[role], t->name);
  return POPULUS_OK;
}

API populus_status populus_run(populus_session *s, const populus_array *in, size_t inputs, const populus_array *out, size_t outputs) {
  if (!s) return fail(opening, POPULUS_ARGUMENT, "populus_run: no session");
  const int64_t *counts = s->model->h->counts;
  if (inputs != (size_t)counts[0] || outputs != (size_t)counts[1] || (inputs && !in) || (outputs && !out))
    return fail(s->text, POPULUS_ARGUMENT, "the program has %lld inputs and %lld outputs; given are %zu and %zu", (long long)counts[0],
                (long long)counts[1], in ? inputs : 0, out ? outputs : 0);
  populus_status why = POPULUS_OK;
  for (size_t i = 0; !why && i < inputs; i++) why = fits(s, in + i, POPULUS_INPUT, i);
  for (size_t i = 0; !why && i < outputs; i++) why = fits(s, out + i, POPULUS_OUTPUT, i);
  if (why) return why;
  why = walk(s, in, out, woken(s));
  atomic_store(&s->state[TICKET], 0);
  return why;
}

static populus_status state(populus_session *s, size_t i, const populus_array *value, int set) {
  if (!s || !value) return fail(s ? s->text : opening, POPULUS_ARGUMENT, "no %s", s ? "array" : "session");
  if (i >= populus_count(s->model, POPULUS_STATE)) return fail(s->text, POPULUS_ARGUMENT, "there is no state %zu", i);
  populus_status why = fits(s, value, POPULUS_STATE, i);
  if (why) return why;
  const record *r = (const record *)(s->model->data + s->model->h->at_tensors) + before(s->model, POPULUS_STATE) + i;
  int64_t n = r->bytes / bytes_of(r->type);
  void *place = s->memory + r->place;
  if (set ? move(place, r->kept, value->data, r->type, n) : move(value->data, r->type, place, r->kept, n))
    return fail(s->text, POPULUS_VALUE, "state '%s' has a value that the program cannot hold", (const char *)s->model->data + r->name);
  return POPULUS_OK;
}

API populus_status populus_get_state(populus_session *s, size_t i, const populus_array *value) { return state(s, i, value, 0); }
API populus_status populus_set_state(populus_session *s, size_t i, const populus_array *value) { return state(s, i, value, 1); }
