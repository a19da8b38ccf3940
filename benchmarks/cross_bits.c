/* Runs libraries that `populus build` made: cross_bits THREADS FILE, which names in three lines each a library, the file of its inputs,
 * one after the other, and that of its outputs. Prints a line for each: `ok`, or what the library says. */
#include "populus.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL(name) ((__typeof__(&name))dlsym(library, #name))

static populus_array *arrays(void *library, const populus_model *model, populus_role role, FILE *from) {
  size_t count = CALL(populus_count)(model, role);
  populus_array *made = calloc(count + 1, sizeof *made);
  for (size_t i = 0; made && i < count; i++) {
    const populus_tensor *t = CALL(populus_describe)(model, role, i);
    made[i] = (populus_array){t->type, t->rank, t->shape, calloc(t->bytes + 1, 1)};
    if (!made[i].data || (from && fread(made[i].data, 1, t->bytes, from) != t->bytes)) exit(3);
  }
  return made;
}

static const char *ran(void *library, int threads, const char *inputs, const char *outputs) {
  populus_model *model;
  populus_session *session;
  if (CALL(populus_load)(NULL, &model) || CALL(populus_open)(model, threads, &session)) return CALL(populus_error)(NULL);
  FILE *from = fopen(inputs, "rb"), *to = fopen(outputs, "wb");
  if (!from || !to) exit(3);
  populus_array *in = arrays(library, model, POPULUS_INPUT, from), *out = arrays(library, model, POPULUS_OUTPUT, NULL);
  size_t given = CALL(populus_count)(model, POPULUS_INPUT), taken = CALL(populus_count)(model, POPULUS_OUTPUT);
  static char said[400];
  const char *error = NULL;
  if (CALL(populus_run)(session, in, given, out, taken))
    error = strncpy(said, CALL(populus_error)(session), sizeof said - 1);
  for (size_t i = 0; i < taken; i++) fwrite(out[i].data, 1, CALL(populus_describe)(model, POPULUS_OUTPUT, i)->bytes, to);
  fclose(from);
  if (fclose(to)) exit(3);
  for (size_t i = 0; i < given; i++) free(in[i].data);
  for (size_t i = 0; i < taken; i++) free(out[i].data);
  free(in);
  free(out);
  CALL(populus_close)(session);
  CALL(populus_unload)(model);
  return error;
}

int main(int count, char **words) {
  char line[3][4096];
  FILE *list = count == 3 ? fopen(words[2], "r") : NULL;
  if (!list) return 2;
  while (fgets(line[0], 4096, list) && fgets(line[1], 4096, list) && fgets(line[2], 4096, list)) {
    for (int i = 0; i < 3; i++) line[i][strcspn(line[i], "\n")] = 0;
    void *library = dlopen(line[0], RTLD_NOW | RTLD_LOCAL);
    const char *error = library ? ran(library, atoi(words[1]), line[1], line[2]) : dlerror();
    puts(error ? error : "ok");
    fflush(stdout);
    if (library) dlclose(library);
  }
  return 0;
}
