/* The model three times from C: each run adds one to its state. */
#include "populus.h"
#include <stdio.h>

int main(void) {
  populus_model *model;
  populus_session *session;
  if (populus_load(NULL, &model) || populus_open(model, 1, &session)) {
    fprintf(stderr, "%s\n", populus_error(NULL));
    return 1;
  }
  float x[2][8] = {{1}, {0, 1}}, y[2][4], runs;
  int64_t in[] = {2, 8}, out[] = {2, 4}, one[] = {1};
  populus_array input = {POPULUS_FLOAT32, 2, in, x}, output = {POPULUS_FLOAT32, 2, out, y};
  populus_array state = {POPULUS_FLOAT32, 1, one, &runs};
  for (int i = 0; i < 3; i++) {
    if (populus_run(session, &input, 1, &output, 1) || populus_get_state(session, 0, &state)) {
      fprintf(stderr, "%s\n", populus_error(session));
      return 1;
    }
    printf("run %g: %g %g\n", runs, y[0][0], y[1][0]);
  }
  input.shape = out; /* a mistake is a code and a text */
  populus_status status = populus_run(session, &input, 1, &output, 1);
  printf("%d: %s\n", (int)status, populus_error(session));
  populus_close(session);
  populus_unload(model);
  return 0;
}
