/* The stub's running state: the node, its clock, its call counts, and what every entry point does first. */
#ifndef NVMLSTUB_NODE_H
#define NVMLSTUB_NODE_H

#include "scenario.h"

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef gpu_t *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0, NVML_UNINITIALIZED = 1, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7, NVML_DRIVER_NOT_LOADED = 9, NVML_TIMEOUT = 10, NVML_VERSION_MISMATCH = 25, NVML_UNKNOWN = 999
};

/* Seconds since the first init: the clock file of SKUWISE_NVML_CLOCK where there is one, else CLOCK_MONOTONIC. */
double node_now(void);
int clock_is_set(void); /* whether it is the file's */

/* NULL before init and after the last shutdown. */
node_t *node_open(void);

/* Counts the call, waits its delay, and returns its fault; for a device, checks the handle too. */
nvmlReturn_t enter_system(function_id function);
nvmlReturn_t enter_device(function_id function, nvmlDevice_t gpu);
nvmlReturn_t device_fault(function_id function, nvmlDevice_t gpu); /* the second half alone */

/* The value of a series now, or its error code. */
nvmlReturn_t gpu_value(nvmlDevice_t gpu, series_id id, double *value);

/* Whether a MIG instance is there now, and how often it has been made by now. Whole GPUs always are. */
int gpu_exists(const gpu_t *gpu);
int gpu_generation(const gpu_t *gpu);
int gpu_in_mig_mode(const gpu_t *gpu);

nvmlReturn_t copy_text(const char *from, char *to, unsigned length);
void wait_ms(double milliseconds);

/* What a MIG instance has not got: the driver tells it of the whole GPU only. */
#define WHOLE_GPU_ONLY(gpu) \
    do { \
        if ((gpu)->parent) return NVML_NOT_SUPPORTED; \
    } while (0)
#define SYSTEM_CALL(function) \
    do { \
        nvmlReturn_t entered = enter_system(F_##function); \
        if (entered) return entered; \
    } while (0)
#define DEVICE_CALL(function, gpu) \
    do { \
        nvmlReturn_t entered = enter_device(F_##function, gpu); \
        if (entered) return entered; \
    } while (0)

#endif
