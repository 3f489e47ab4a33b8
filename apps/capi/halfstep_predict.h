/* SPDX-License-Identifier: Apache-2.0 */
/* A model that halfstep has trained, in use from C and from every language that can call C: libhalfstep_predict.so.
 *
 *   hs_model* model = hs_open("runs/houses", NULL);
 *   float price;
 *   const int64_t shape[] = {1, 8};                               one sample of 8 columns
 *   if (!model || hs_run(model, HS_ANSWERS, HS_FLOAT32, columns, shape, 2, &price, 1) < 0) puts(hs_error());
 *   hs_close(model);
 *
 * Failures. A function that returns a pointer returns NULL; any other returns one of the negative codes of hs_status. Then
 * hs_error() says why. A function that fails has changed nothing, except that hs_run may have written a part of the outputs.
 *
 * Threads. All functions may be called from several threads at once, also hs_run with one model: each call gives the same bits as
 * if it were alone, whatever the rounding mode of its thread, and whether that flushes small numbers to zero. Calls wait for each
 * other if the model is on a GPU, or has stateful layers or embeddings with max_norm.
 *
 * Forks. fork() waits until no other thread is inside of these functions, for ten seconds at most, and the child may use the
 * library and the models that are open. If ten seconds were too short, all functions of the child fail with HS_FAILED.
 *
 * Ends. exit() waits for calls that are under way, for ten seconds at most. Later ones of hs_open and hs_run fail: HS_FAILED.
 *
 * Handles. A handle is never used again after hs_close, so that a function that gets a closed one fails with HS_BAD_ARGUMENT. If
 * another thread closes a model during a call, that call still ends as usual.
 *
 * Versions. The library's name ends in .so.0; as long as it does, functions and codes are only added. */
#ifndef HALFSTEP_PREDICT_H
#define HALFSTEP_PREDICT_H

#include <stdint.h>

#if defined(__GNUC__)
#define HS_API __attribute__((visibility("default")))
#else
#define HS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A handle; NULL: none. Its type has no definition. */
typedef struct hs_model hs_model;

enum hs_status {
  HS_BAD_ARGUMENT = -1, /* a NULL pointer, a closed handle, an unknown number, a buffer that is too small */
  HS_BAD_INPUT = -2,    /* inputs of a shape, dtype or range that the model does not take, or tokens outside its vocabulary */
  HS_NO_MEMORY = -3,
  HS_FAILED = -4 /* all else; hs_error() says what */
};

/* Numbers of inputs. */
enum hs_dtype { HS_FLOAT32 = 0, HS_INT64 = 1, HS_FLOAT64 = 2 };

/* The kinds of results of hs_run. */
enum hs_result {
  /* The answers of `halfstep predict`: probabilities of classes (softmax of the outputs after CrossEntropyLoss, exp after NLLLoss);
   * numbers in the units of the training data's file; the outputs, if the loss gives them neither meaning. "answers" of
   * hs_describe has the kind. */
  HS_ANSWERS = 0,
  /* The outputs of the network as they are. */
  HS_OUTPUTS = 1
};

/* No shape has more dimensions, that of samples included. */
enum { HS_MAX_DIMS = 8 };

/* Returns "0.2.0". Never NULL. */
HS_API const char* hs_version(void);

/* Opens a model. `path`: a run's folder (its best checkpoint, else its latest), RUN/latest, or a checkpoint; in UTF-8, or whatever
 * bytes the file system uses. The training data is not needed. `options`: NULL, or a JSON object with some of
 *   "device"    "cpu" or "cuda"; without it the device of the run
 *   "amp"       false: compute in float32, also where the run used mixed precision; default true
 *   "averages"  false: the weights that were trained, where the run has averages of them; default true
 * Returns a handle, which the caller closes with hs_close; NULL if there is no such file, a checkpoint is damaged, or an option is
 * unknown. Opening includes one run on a sample of zeros; the first run of many samples lays out weights for these, and takes
 * longer. */
HS_API hs_model* hs_open(const char* path, const char* options);

/* Frees a model and all texts that its functions returned. Returns 0, or HS_BAD_ARGUMENT for NULL or a closed handle. */
HS_API int hs_close(hs_model* model);

/* Returns a JSON object about the model, UTF-8, owned by the model. "form" has facts about the training data: the kind of data
 * ("image", "table", "series", "text" or "tensor"), columns, categories, names of classes, scales. Besides: "answers"
 * ("probabilities", "numbers" or "outputs"), "input" and "output" (shapes of one sample), "dtype" (of the input), "checkpoint",
 * "step", "averaged", "loss", "device" and "version". Readers must ignore other keys. */
HS_API const char* hs_describe(hs_model* model);

/* Writes the shape of one sample's input, without the dimension of samples, to shape[0], shape[1], ... and the dtype that the model
 * takes to *dtype; either may be NULL. Returns the number of dimensions, from 0 to HS_MAX_DIMS - 1. */
HS_API int hs_input(hs_model* model, int64_t shape[HS_MAX_DIMS - 1], int* dtype);

/* Writes and returns the same for the result of one sample, which is always float32. */
HS_API int hs_output(hs_model* model, int64_t shape[HS_MAX_DIMS - 1]);

/* Returns the number of classes; 0 if the answers are numbers. */
HS_API int64_t hs_classes(hs_model* model);

/* Returns the name of class `index`, UTF-8, owned by the model; its number where the training data has no names. NULL for other
 * indices. */
HS_API const char* hs_class(hs_model* model, int64_t index);

/* Runs the model on any number of samples, 64 at a time, as `halfstep predict` does. Equal samples of one call give equal bits, and
 * equal calls too; calls with another number of samples may differ in the last bits.
 *
 * `inputs` has shape[0] samples in C order: shape[1], shape[2], ... are the sizes that hs_input gives, and dims is one more than
 * the number that it returns. Values are those before any normalisation:
 *   pictures   pixels in [0, 1], channels first
 *   tables     columns in the units of the file, in the order of "columns" in "source" of the form. A column with categories is one
 *              input for each of them, 1 for the row's and 0 for the others (without one_hot its number); else the inputs are
 *              refused. NaN is a missing value where the training data's were filled in, and in all inputs of a column with
 *              categories where the first of these is "", a missing value; else it is refused there
 *   series     values in the units of the file
 *   text       tokens, also of tables of texts: "texts" in "source" of the form has them
 *   others     what the arrays of the training data had; where those were bytes of pixels, pixels in [0, 1]. Bytes of 0 and 1
 *              were no pixels, and are 0 and 1 here
 * Pixels up to 255, pixels above 1 in HS_INT64, and other arrays that are surely in other units than the training data are
 * refused. Other numbers are not compared with the training data's, however far outside they are: "low" and "high" in "source" of
 * the form have its range, for tables of each input (arrays and tables; series have the mean and deviation in "scaling").
 * `dtype`: HS_FLOAT32, HS_FLOAT64 or HS_INT64. A model that takes float32 converts the others, after columns and series are scaled:
 * give numbers that float32 does not hold, such as seconds since 1970, as HS_FLOAT64 or HS_INT64. Otherwise a line on
 * stderr, once in a process, names their columns. A model that takes int64 takes no other. `inputs` is aligned as its type and only
 * read during the call.
 *
 * `outputs` gets shape[0] results in C order, each of the shape that hs_output gives. `capacity` is the number of floats that it
 * has room for. Answers whose deviation is small against their mean lose digits in it, of which a line on stderr warns:
 * HS_OUTPUTS * std + mean, of "scale" in the form, has them in float64. `outputs` must not overlap the inputs. Returns how many
 * floats were written.
 *
 * Both pointers may be NULL if shape[0] is 0. */
HS_API int64_t hs_run(hs_model* model, int result, int dtype, const void* inputs, const int64_t* shape, int dims, float* outputs,
                      int64_t capacity);

/* Returns the reason why the last function that failed on this thread did so; "" if none has. Never NULL. The text belongs to the
 * library and is valid until the next failure on this thread. */
HS_API const char* hs_error(void);

/* Sets how many threads the library computes with, in all calls together with the calling thread; 0 changes nothing. At first there
 * are as many as the process may use cores, by taskset and by the limit of its container (cpu.max), or as OMP_NUM_THREADS says. The
 * number of threads that other code uses OpenMP with is neither read nor changed. Another number may change the last bits of
 * results. Returns the number in use. */
HS_API int hs_threads(int count);

#ifdef __cplusplus
}
#endif

#endif /* HALFSTEP_PREDICT_H */
