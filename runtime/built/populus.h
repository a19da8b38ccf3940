/* Programs that `populus build` made, for C and C++.
 *
 *     populus_model *model;  populus_session *session;
 *     if (populus_load(NULL, &model) || populus_open(model, 0, &session)) puts(populus_error(NULL));
 *     populus_array x = {POPULUS_FLOAT32, 4, shape, pixels}, y = {POPULUS_FLOAT32, 2, classes, scores};
 *     if (populus_run(session, &x, 1, &y, 1)) puts(populus_error(session));
 *     populus_close(session);  populus_unload(model);
 *
 * A model may be used by any number of threads at once. A session has memory, states and threads of its own; one thread at a
 * time may use it, and any number of sessions may run at once. Texts and descriptions live as long as what they were asked of.
 */
#ifndef POPULUS_H
#define POPULUS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define POPULUS_VERSION 1 /* of this interface, which only grows */

typedef struct populus_model populus_model;
typedef struct populus_session populus_session;

typedef enum {
  POPULUS_OK = 0,
  POPULUS_ARGUMENT = 1, /* an array of another type or shape, a null pointer, a number out of range */
  POPULUS_FILE = 2,     /* the file of data cannot be read */
  POPULUS_FORMAT = 3,   /* the file is not the data of this library, or is damaged */
  POPULUS_MEMORY = 4,   /* the system gives no memory */
  POPULUS_CPU = 5,      /* made for instructions that this CPU lacks */
  POPULUS_VALUE = 6     /* an input has a value that the model refuses, such as an index outside of a table */
} populus_status;

typedef enum { /* ONNX's numbers; types of less than a byte take one byte for each element */
  POPULUS_FLOAT32 = 1, POPULUS_UINT8 = 2, POPULUS_INT8 = 3, POPULUS_UINT16 = 4, POPULUS_INT16 = 5, POPULUS_INT32 = 6,
  POPULUS_INT64 = 7, POPULUS_BOOL = 9, POPULUS_FLOAT16 = 10, POPULUS_FLOAT64 = 11, POPULUS_UINT32 = 12, POPULUS_UINT64 = 13,
  POPULUS_BFLOAT16 = 16, POPULUS_FLOAT8E4M3FN = 17, POPULUS_FLOAT8E4M3FNUZ = 18, POPULUS_FLOAT8E5M2 = 19,
  POPULUS_FLOAT8E5M2FNUZ = 20, POPULUS_UINT4 = 21, POPULUS_INT4 = 22, POPULUS_FLOAT4E2M1 = 23, POPULUS_FLOAT8E8M0 = 24,
  POPULUS_UINT2 = 25, POPULUS_INT2 = 26
} populus_type;

typedef enum { POPULUS_INPUT = 0, POPULUS_OUTPUT = 1, POPULUS_STATE = 2 } populus_role;

typedef struct { /* of an input, an output or a state */
  const char *name;
  populus_type type;
  int32_t rank;
  const int64_t *shape;
  size_t bytes;
} populus_tensor;

typedef struct { /* the caller's elements: dense, row-major, at any alignment */
  populus_type type;
  int32_t rank;
  const int64_t *shape; /* may be null if rank is 0 */
  void *data;           /* of an input it is only read */
} populus_array;

/* Gives POPULUS_VERSION of the library. */
uint32_t populus_version(void);

/* Loads the model. `data`: its file of weights; null: the one inside the library, or beside it under its first name.
 * The file is mapped: it must stay as it is until the model is unloaded. */
populus_status populus_load(const char *data, populus_model **model);

/* Frees a model, whose sessions were closed before. Null does nothing. */
void populus_unload(populus_model *model);

/* Counts the inputs, outputs or states. */
size_t populus_count(const populus_model *model, populus_role role);

/* Describes an input, output or state; null if there is none of this number. */
const populus_tensor *populus_describe(const populus_model *model, populus_role role, size_t number);

/* Opens a session. `threads`: those that share the work, 1 to 250; 0: as many as the CPUs of this process. States are zeros. */
populus_status populus_open(const populus_model *model, int threads, populus_session **session);

/* Frees a session and ends its threads. Null does nothing. */
void populus_close(populus_session *session);

/* Runs the model once: reads all inputs and writes all outputs, in order. After an error, outputs and states are undefined. */
populus_status populus_run(populus_session *session, const populus_array *inputs, size_t input_count, const populus_array *outputs,
                           size_t output_count);

/* Copies a state out, or replaces it. */
populus_status populus_get_state(populus_session *session, size_t number, const populus_array *value);
populus_status populus_set_state(populus_session *session, size_t number, const populus_array *value);

/* Gives the text of a session's last error; null: of this thread's last populus_load or populus_open. */
const char *populus_error(const populus_session *session);

#ifdef __cplusplus
}
#endif
#endif
