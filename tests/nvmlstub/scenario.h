/* What a simulated node holds, read from a scenario file (README.md), and its value at any second. */
#ifndef NVMLSTUB_SCENARIO_H
#define NVMLSTUB_SCENARIO_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_GPUS = 64, MAX_PROCESSES = 256, MAX_STEPS = 64, MAX_RESETS = 16, MAX_LINKS = 36, MAX_INSTANCES = 8,
       MAX_EVENTS = 256, TEXT = 96 };

/* A value over time: steps sorted by `at` (seconds since init). `code` other than 0 is an NVML error instead. */
typedef struct { double at, value; int code; } step_t;
/* With an `every` above 0 the steps, all before it, begin again each so many seconds. */
typedef struct { int count; step_t steps[MAX_STEPS]; double every; } series_t;

/* Series, in base units, with the value that holds where the scenario does not say. */
#define SERIES(X) \
    X(gpu_util, 0) X(memory_util, 0) X(graphics_active, 0) X(sm_active, 0) X(sm_occupancy, 0) X(integer_active, 0) \
    X(tensor_active, 0) X(dfma_tensor_active, 0) X(hmma_tensor_active, 0) X(dmma_tensor_active, 0) \
    X(imma_tensor_active, 0) X(dram_active, 0) X(fp64_active, 0) X(fp32_active, 0) X(fp16_active, 0) \
    X(mem_used_bytes, 0) X(power_watts, 100) X(sm_clock_hertz, 1.98e9) X(mem_clock_hertz, 2.619e9) \
    X(temperature_celsius, 40) X(throttle_reasons, 0) X(pcie_tx_bytes_per_second, 0) X(pcie_rx_bytes_per_second, 0) \
    X(nvlink_tx_bytes_per_second, 0) X(nvlink_rx_bytes_per_second, 0) X(energy_status, 0) X(nvlink_status, 0) \
    X(pcie_status, 0) X(mig_mode, 0) X(exists, 1)

#define SERIES_ENUM(name, initial) S_##name,
typedef enum { SERIES(SERIES_ENUM) SERIES_COUNT } series_id;

/* Every function of the ABI that the stub has: counted, and open to faults and delays. */
#define FUNCTIONS(X) \
    X(nvmlInit_v2) X(nvmlInitWithFlags) X(nvmlShutdown) X(nvmlErrorString) X(nvmlSystemGetDriverVersion) \
    X(nvmlSystemGetNVMLVersion) X(nvmlSystemGetCudaDriverVersion) X(nvmlSystemGetCudaDriverVersion_v2) \
    X(nvmlDeviceGetCount_v2) X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByUUID) \
    X(nvmlDeviceGetHandleByPciBusId_v2) X(nvmlDeviceGetName) X(nvmlDeviceGetUUID) X(nvmlDeviceGetIndex) \
    X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetSerial) X(nvmlDeviceGetPciInfo_v3) X(nvmlDeviceGetMemoryInfo) \
    X(nvmlDeviceGetMemoryInfo_v2) X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetPowerManagementLimit) \
    X(nvmlDeviceGetEnforcedPowerLimit) X(nvmlDeviceGetTotalEnergyConsumption) X(nvmlDeviceGetClockInfo) \
    X(nvmlDeviceGetMaxClockInfo) X(nvmlDeviceGetTemperature) X(nvmlDeviceGetTemperatureV) \
    X(nvmlDeviceGetCurrentClocksEventReasons) X(nvmlDeviceGetCurrentClocksThrottleReasons) \
    X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetComputeRunningProcesses_v2) \
    X(nvmlDeviceGetComputeRunningProcesses_v3) X(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    X(nvmlDeviceGetFieldValues) X(nvmlDeviceGetMigMode) X(nvmlDeviceGetMaxMigDeviceCount) \
    X(nvmlDeviceGetNvLinkState) X(nvmlDeviceGetNvLinkVersion) X(nvmlDeviceGetNvLinkRemotePciInfo_v2) \
    X(nvmlDeviceGetNvLinkRemoteDeviceType) X(nvmlDeviceGetAttributes_v2) X(nvmlDeviceGetArchitecture) \
    X(nvmlDeviceGetCudaComputeCapability) X(nvmlDeviceGetNumGpuCores) X(nvmlDeviceGetCurrPcieLinkGeneration) \
    X(nvmlDeviceGetMaxPcieLinkGeneration) X(nvmlDeviceGetCurrPcieLinkWidth) X(nvmlDeviceGetMaxPcieLinkWidth) \
    X(nvmlDeviceGetPcieThroughput) X(nvmlGpmQueryDeviceSupport) X(nvmlGpmSampleAlloc) X(nvmlGpmSampleFree) \
    X(nvmlGpmSampleGet) X(nvmlGpmMigSampleGet) X(nvmlGpmMetricsGet) X(nvmlDeviceGetMigDeviceHandleByIndex) \
    X(nvmlDeviceIsMigDeviceHandle) X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId) \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) X(nvmlEventSetCreate) X(nvmlEventSetFree) X(nvmlEventSetWait_v2) \
    X(nvmlDeviceRegisterEvents) X(nvmlDeviceGetSupportedEventTypes)

#define FUNCTION_ENUM(name) F_##name,
typedef enum { FUNCTIONS(FUNCTION_ENUM) FUNCTION_COUNT } function_id;

typedef struct { unsigned pid; double from, until; unsigned long long memory; int memory_known; } process_t;
typedef struct { int count; double at[MAX_RESETS]; double start; } counter_t;
typedef enum { COUNTERS_NONE, COUNTERS_KIB, COUNTERS_BYTES, COUNTERS_BOTH } nvlink_counters_t;

/* `count` events of one kind, `every` seconds apart from `at` on. `instance`: the GPU instance it names, or -1. */
typedef struct { double at, every; unsigned long long type, data; int count, instance; } event_t;

typedef struct gpu {
    int index, defined;
    char name[TEXT], uuid[TEXT], bus_id[32];
    unsigned long long memory_total, memory_reserved;
    double power_limit_watts, sm_clock_max_hertz, mem_clock_max_hertz;
    int gpm, minor, links, links_active, link_mb_per_second, architecture, compute_major, compute_minor, cores, sms;
    int pcie_gen, pcie_width, pcie_counter_bits;
    nvlink_counters_t nvlink_counters;
    counter_t energy, nvlink, pcie;
    series_t series[SERIES_COUNT];
    series_t *fault[FUNCTION_COUNT]; /* NULL: none */
    series_t *any_fault;
    series_t *delay_ms[FUNCTION_COUNT];
    process_t processes[MAX_PROCESSES];
    int process_count;
    struct gpu *parent, *instances[MAX_INSTANCES]; /* parent: this is a MIG instance */
    int instance_count, gpu_instance, compute_instance, slices;
    unsigned long long event_types;
    event_t events[MAX_EVENTS];
    int event_count;
} gpu_t;

typedef struct {
    char driver[TEXT];
    int cuda, gpu_count, process_bytes; /* of an entry in a list of processes, 24 in the header */
    series_t *fault[FUNCTION_COUNT];
    series_t *delay_ms[FUNCTION_COUNT];
    gpu_t *gpus[MAX_GPUS];
    event_t events[MAX_EVENTS]; /* of no device */
    int event_count;
} node_t;

extern const char *const function_names[FUNCTION_COUNT];

/* Reads the scenario into `node`. Returns 0, or -1 after a sentence on stderr. */
int scenario_load(const char *path, node_t *node);

/* The step that holds at `now`; NULL where the series is empty or begins later. */
const step_t *series_at(const series_t *series, double now);

/* Integral of the value over [from, to]; NaN and errors count as nothing. */
double series_integral(const series_t *series, double from, double to);

/* A counter of `rate`'s integral at `now`: from its start value, and from 0 again after each reset. */
double counter_at(const counter_t *counter, const series_t *rate, double now);

#endif
