/* Init, shutdown, the clock, call counts, faults, and the questions about the node as a whole. */
#define _GNU_SOURCE
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static node_t *node;
static int references;
static double epoch = -1;
static volatile const double *clock_file;
static atomic_ulong calls[FUNCTION_COUNT];

extern long gpm_live_samples(void);
extern double gpm_smallest_gap_seconds(void);
extern long event_live_sets(void);

static double monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void map_clock(void) {
    const char *path = getenv("SKUWISE_NVML_CLOCK");
    if (!path || clock_file) return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (mapped == MAP_FAILED) fprintf(stderr, "nvmlstub: cannot map the clock %s\n", path);
    else clock_file = mapped;
}

double node_now(void) { return clock_file ? *clock_file : monotonic() - epoch; }

int clock_is_set(void) { return clock_file != NULL; }

node_t *node_open(void) { return references > 0 ? node : NULL; }

void wait_ms(double milliseconds) {
    struct timespec left = {(time_t)(milliseconds / 1e3), 0};
    left.tv_nsec = (long)((milliseconds - 1e3 * (double)left.tv_sec) * 1e6);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

static void wait_delay(const series_t *delay) {
    const step_t *step = delay ? series_at(delay, node_now()) : NULL;
    if (step && step->value > 0) wait_ms(step->value);
}

static nvmlReturn_t series_fault(const series_t *series) {
    const step_t *step = series ? series_at(series, node_now()) : NULL;
    return step ? step->code : NVML_SUCCESS;
}

nvmlReturn_t enter_system(function_id function) {
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
    if (!node_open()) return NVML_UNINITIALIZED;
    wait_delay(node->delay_ms[function]);
    return series_fault(node->fault[function]);
}

nvmlReturn_t enter_device(function_id function, nvmlDevice_t gpu) {
    nvmlReturn_t entered = enter_system(function);
    return entered ? entered : device_fault(function, gpu);
}

int gpu_in_mig_mode(const gpu_t *gpu) {
    const step_t *step = series_at(&gpu->series[S_mig_mode], node_now());
    return step && step->value != 0;
}

int gpu_exists(const gpu_t *gpu) {
    if (!gpu->parent) return 1;
    const step_t *step = series_at(&gpu->series[S_exists], node_now());
    return step && step->value != 0 && gpu_in_mig_mode(gpu->parent);
}

int gpu_generation(const gpu_t *gpu) {
    int made = 0;
    const series_t *exists = &gpu->series[S_exists];
    for (int i = 0; i < exists->count && exists->steps[i].at <= node_now(); i++) made += exists->steps[i].value != 0;
    return made;
}

nvmlReturn_t device_fault(function_id function, nvmlDevice_t gpu) {
    int known = 0;
    for (int i = 0; i < node->gpu_count; i++) {
        known |= node->gpus[i] == gpu;
        for (int j = 0; j < node->gpus[i]->instance_count; j++) known |= node->gpus[i]->instances[j] == gpu;
    }
    if (!known || !gpu_exists(gpu)) return NVML_INVALID_ARGUMENT;
    if (gpu->parent && series_fault(gpu->parent->any_fault)) return series_fault(gpu->parent->any_fault);
    wait_delay(gpu->delay_ms[function]);
    nvmlReturn_t fault = series_fault(gpu->any_fault);
    return fault ? fault : series_fault(gpu->fault[function]);
}

nvmlReturn_t gpu_value(nvmlDevice_t gpu, series_id id, double *value) {
    const step_t *step = series_at(&gpu->series[id], node_now());
    *value = step ? step->value : 0;
    return step ? step->code : NVML_NOT_SUPPORTED;
}

nvmlReturn_t copy_text(const char *from, char *to, unsigned length) {
    if (!to || strlen(from) + 1 > length) return NVML_INSUFFICIENT_SIZE;
    memcpy(to, from, strlen(from) + 1);
    return NVML_SUCCESS;
}

/* ---- what the stub adds to the ABI, for tests ---- */

EXPORT unsigned long nvmlStubCalls(const char *name) {
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strcmp(name, function_names[i]) == 0) return atomic_load(&calls[i]);
    return 0;
}

EXPORT long nvmlStubLiveGpmSamples(void) { return gpm_live_samples(); }

static void write_calls(void) {
    const char *path = getenv("SKUWISE_NVML_CALLS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (atomic_load(&calls[i])) fprintf(file, "%s %lu\n", function_names[i], atomic_load(&calls[i]));
    fprintf(file, "gpm.live_samples %ld\n", gpm_live_samples());
    fprintf(file, "events.live_sets %ld\n", event_live_sets());
    if (gpm_smallest_gap_seconds() >= 0) fprintf(file, "gpm.smallest_gap_seconds %.9g\n", gpm_smallest_gap_seconds());
    fclose(file);
}

static __attribute__((destructor)) void at_unload(void) { write_calls(); }

/* ---- init and shutdown ---- */

static nvmlReturn_t init(function_id function) {
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
    const char *path = getenv("SKUWISE_NVML_SCENARIO");
    if (!path) {
        fprintf(stderr, "nvmlstub: SKUWISE_NVML_SCENARIO names no scenario, so there is no driver\n");
        return NVML_DRIVER_NOT_LOADED;
    }
    /* NVIDIA's library begins with this open; a node without a driver behind it (ENXIO) is enough here. */
    const char *device = getenv("SKUWISE_NVML_DEVICE");
    if (device) {
        int file = open(device, O_RDWR | O_CLOEXEC);
        if (file < 0 && errno != ENXIO) return errno == ENOENT ? NVML_DRIVER_NOT_LOADED : NVML_UNKNOWN;
        if (file >= 0) close(file);
    }
    if (epoch < 0) epoch = monotonic();
    map_clock();
    if (!node) {
        node_t *loaded = calloc(1, sizeof *loaded);
        if (!loaded || scenario_load(path, loaded) != 0) return NVML_UNKNOWN;
        node = loaded; /* kept for the life of the process: handles stay valid over shutdown and init */
    }
    wait_delay(node->delay_ms[function]);
    nvmlReturn_t fault = series_fault(node->fault[function]);
    if (!fault) references++;
    return fault;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return init(F_nvmlInit_v2); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return init(F_nvmlInitWithFlags);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    SYSTEM_CALL(nvmlShutdown);
    references--;
    write_calls();
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "The operating system has blocked the request",
        "Driver/library version mismatch", "GPU In Use", "Insufficient Memory", "No data"};
    atomic_fetch_add_explicit(&calls[F_nvmlErrorString], 1, memory_order_relaxed);
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

/* ---- the node as a whole ---- */

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned length) {
    SYSTEM_CALL(nvmlSystemGetDriverVersion);
    return copy_text(node->driver, text, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned length) {
    SYSTEM_CALL(nvmlSystemGetNVMLVersion);
    char version[TEXT + 16];
    snprintf(version, sizeof version, "%d.%s", node->cuda / 1000, node->driver);
    return copy_text(version, text, length);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    SYSTEM_CALL(nvmlSystemGetCudaDriverVersion);
    *version = node->cuda;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    SYSTEM_CALL(nvmlSystemGetCudaDriverVersion_v2);
    *version = node->cuda;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    SYSTEM_CALL(nvmlDeviceGetCount_v2);
    *count = (unsigned)node->gpu_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *gpu) {
    SYSTEM_CALL(nvmlDeviceGetHandleByIndex_v2);
    if (index >= (unsigned)node->gpu_count) return NVML_INVALID_ARGUMENT;
    *gpu = node->gpus[index];
    return device_fault(F_nvmlDeviceGetHandleByIndex_v2, *gpu);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *gpu) {
    SYSTEM_CALL(nvmlDeviceGetHandleByUUID);
    for (int i = 0; i < node->gpu_count; i++) {
        if (strcmp(node->gpus[i]->uuid, uuid) != 0) continue;
        *gpu = node->gpus[i];
        return device_fault(F_nvmlDeviceGetHandleByUUID, *gpu);
    }
    for (int i = 0; i < node->gpu_count; i++) {
        for (int j = 0; j < node->gpus[i]->instance_count; j++) {
            gpu_t *one = node->gpus[i]->instances[j];
            if (strcmp(one->uuid, uuid) != 0 || !gpu_exists(one)) continue;
            *gpu = one;
            return device_fault(F_nvmlDeviceGetHandleByUUID, *gpu);
        }
    }
    return NVML_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *gpu) {
    SYSTEM_CALL(nvmlDeviceGetHandleByPciBusId_v2);
    for (int i = 0; i < node->gpu_count; i++) {
        const char *known = node->gpus[i]->bus_id; /* 8-digit domain; callers may give the 4-digit form of sysfs */
        if (strcasecmp(known, bus_id) != 0 && (strlen(known) < 5 || strcasecmp(known + 4, bus_id) != 0)) continue;
        *gpu = node->gpus[i];
        return device_fault(F_nvmlDeviceGetHandleByPciBusId_v2, *gpu);
    }
    return NVML_NOT_FOUND;
}
