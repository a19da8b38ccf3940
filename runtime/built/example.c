/* Runs a built program once, on drawn inputs: ./example [FILE OF WEIGHTS [THREADS]] */
#include "populus.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const populus_session *session) {
  fprintf(stderr, "%s\n", populus_error(session));
  return 1;
}

/* Elements that only their number decides: floats of -1 to 1, and zeros of all other types, which are indices at times. */
static void draw(const populus_tensor *tensor, void *data) {
  uint64_t seed = 1;
  for (size_t i = 0; tensor->type == POPULUS_FLOAT32 && i < tensor->bytes / sizeof(float); i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    ((float *)data)[i] = (float)(int32_t)(seed >> 32) / 2147483648.0f;
  }
}

static populus_array *arrays(const populus_model *model, populus_role role) {
  size_t count = populus_count(model, role);
  populus_array *made = calloc(count + 1, sizeof *made);
  for (size_t i = 0; made && i < count; i++) {
    const populus_tensor *t = populus_describe(model, role, i);
    made[i].type = t->type;
    made[i].rank = t->rank;
    made[i].shape = t->shape;
    made[i].data = calloc(t->bytes + 1, 1);
    if (!made[i].data) return NULL;
    if (role == POPULUS_INPUT) draw(t, made[i].data);
  }
  return made;
}

static void show(const populus_tensor *t, const populus_array *a) {
  printf("%s: type %d, shape", t->name, (int)t->type);
  for (int32_t d = 0; d < t->rank; d++) printf(" %" PRId64, t->shape[d]);
  for (size_t i = 0; t->type == POPULUS_FLOAT32 && i < 4 && i < t->bytes / sizeof(float); i++)
    printf("%s %.9g", i ? "," : ":", (double)((const float *)a->data)[i]);
  printf("\n");
}

int main(int count, char **words) {
  populus_model *model;
  populus_session *session;
  if (populus_load(count > 1 ? words[1] : NULL, &model)) return failed(NULL);
  if (populus_open(model, count > 2 ? atoi(words[2]) : 0, &session)) return failed(NULL);
  populus_array *in = arrays(model, POPULUS_INPUT), *out = arrays(model, POPULUS_OUTPUT);
  size_t inputs = populus_count(model, POPULUS_INPUT), outputs = populus_count(model, POPULUS_OUTPUT);
  if (!in || !out) return 1;
  if (populus_run(session, in, inputs, out, outputs)) return failed(session);
  for (size_t i = 0; i < outputs; i++) show(populus_describe(model, POPULUS_OUTPUT, i), out + i);
  for (size_t i = 0; i < inputs; i++) free(in[i].data);
  for (size_t i = 0; i < outputs; i++) free(out[i].data);
  free(in);
  free(out);
  populus_close(session);
  populus_unload(model);
  return 0;
}
