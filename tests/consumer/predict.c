/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C that uses a model of halfstep: predict RUN. The model takes four columns and has two classes. */
#include <halfstep_predict.h>
#include <stdint.h>
#include <stdio.h>

int main(int argc, char** argv) {
  const int64_t shape[] = {1, 4};
  const float x[] = {0.1f, 0.2f, 0.3f, 0.4f};
  float y[2];
  hs_model* model = hs_open(argc > 1 ? argv[1] : "runs/plain", NULL);
  if (!model || hs_run(model, HS_ANSWERS, HS_FLOAT32, x, shape, 2, y, 2) < 0) {
    puts(hs_error());
    return 1;
  }
  printf("halfstep %s: %s %.3f, %s %.3f\n", hs_version(), hs_class(model, 0), y[0], hs_class(model, 1), y[1]);
  hs_close(model);
  return y[0] + y[1] > 0.999f && y[0] + y[1] < 1.001f ? 0 : 1;
}
