/* The questions about one GPU: what it is, its gauges, its processes, its field values, its GPM samples. */
#define _GNU_SOURCE
#include "node.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } nvmlPciInfo_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned version, sensorType; int temperature; } nvmlTemperature_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef union { double d; unsigned u; unsigned long long ull; } nvmlValue_t;
typedef struct { uint32_t fieldId, scopeId; int64_t timestamp, latencyUsec; uint32_t valueType, nvmlReturn; nvmlValue_t value; } nvmlFieldValue_t;
typedef struct {
    unsigned sms, copyEngines, decoders, encoders, jpegs, ofas, gpuSlices, computeSlices;
    unsigned long long memoryMB;
} nvmlDeviceAttributes_t;

#define TEXT_GETTER(function, field) \
    EXPORT nvmlReturn_t function(nvmlDevice_t gpu, char *text, unsigned length) { \
        DEVICE_CALL(function, gpu); \
        return copy_text(gpu->field, text, length); \
    }
#define NUMBER_GETTER(function, type, expression) \
    EXPORT nvmlReturn_t function(nvmlDevice_t gpu, type *number) { \
        DEVICE_CALL(function, gpu); \
        *number = (type)(expression); \
        return NVML_SUCCESS; \
    }
#define SERIES_GETTER(function, type, series, scale) \
    EXPORT nvmlReturn_t function(nvmlDevice_t gpu, type *number) { \
        DEVICE_CALL(function, gpu); \
        WHOLE_GPU_ONLY(gpu); \
        double value; \
        nvmlReturn_t code = gpu_value(gpu, series, &value); \
        if (!code) *number = (type)llround(value * (scale)); \
        return code; \
    }

TEXT_GETTER(nvmlDeviceGetName, name)
TEXT_GETTER(nvmlDeviceGetUUID, uuid)
NUMBER_GETTER(nvmlDeviceGetIndex, unsigned, gpu->index)
NUMBER_GETTER(nvmlDeviceGetMinorNumber, unsigned, gpu->minor)
NUMBER_GETTER(nvmlDeviceGetArchitecture, unsigned, gpu->architecture)
NUMBER_GETTER(nvmlDeviceGetNumGpuCores, unsigned, gpu->cores)
NUMBER_GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, gpu->parent ? 0 : gpu->instance_count > 7 ? gpu->instance_count : 7)
NUMBER_GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, gpu->pcie_gen)
NUMBER_GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, gpu->pcie_gen)
NUMBER_GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, gpu->pcie_width)
NUMBER_GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, gpu->pcie_width)
NUMBER_GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, llround(1e3 * gpu->power_limit_watts))
NUMBER_GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, llround(1e3 * gpu->power_limit_watts))
SERIES_GETTER(nvmlDeviceGetPowerUsage, unsigned, S_power_watts, 1e3)
SERIES_GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, S_throttle_reasons, 1)
SERIES_GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, S_throttle_reasons, 1)

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t gpu, char *text, unsigned length) {
    DEVICE_CALL(nvmlDeviceGetSerial, gpu);
    (void)text, (void)length;
    return NVML_NOT_SUPPORTED;
}

static nvmlReturn_t fill_pci(const char *bus_id, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%s", bus_id);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%.15s", strlen(bus_id) > 12 ? bus_id + 4 : bus_id);
    return sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) == 3 ? NVML_SUCCESS : NVML_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *pci) {
    DEVICE_CALL(nvmlDeviceGetPciInfo_v3, gpu);
    WHOLE_GPU_ONLY(gpu);
    return fill_pci(gpu->bus_id, pci);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *memory) {
    DEVICE_CALL(nvmlDeviceGetMemoryInfo, gpu);
    double used;
    nvmlReturn_t code = gpu_value(gpu, S_mem_used_bytes, &used);
    memory->total = gpu->memory_total;
    memory->used = (unsigned long long)used + gpu->memory_reserved; /* v1 counts the driver's reserve as used */
    memory->free = memory->total - memory->used;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *memory) {
    DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, gpu);
    if (memory->version != (sizeof *memory | 2u << 24)) return NVML_VERSION_MISMATCH;
    double used;
    nvmlReturn_t code = gpu_value(gpu, S_mem_used_bytes, &used);
    memory->total = gpu->memory_total;
    memory->reserved = gpu->memory_reserved;
    memory->used = (unsigned long long)used;
    memory->free = memory->total - memory->reserved - memory->used;
    return code;
}

static nvmlReturn_t clock_value(nvmlDevice_t gpu, unsigned type, int maximum, unsigned *mhz) {
    if (type > 3) return NVML_INVALID_ARGUMENT;
    double hertz = type == 2 ? gpu->mem_clock_max_hertz : gpu->sm_clock_max_hertz;
    nvmlReturn_t code = maximum ? NVML_SUCCESS : gpu_value(gpu, type == 2 ? S_mem_clock_hertz : S_sm_clock_hertz, &hertz);
    *mhz = (unsigned)llround(hertz / 1e6);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, unsigned type, unsigned *mhz) {
    DEVICE_CALL(nvmlDeviceGetClockInfo, gpu);
    WHOLE_GPU_ONLY(gpu);
    return clock_value(gpu, type, 0, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t gpu, unsigned type, unsigned *mhz) {
    DEVICE_CALL(nvmlDeviceGetMaxClockInfo, gpu);
    return clock_value(gpu, type, 1, mhz);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, unsigned sensor, unsigned *celsius) {
    DEVICE_CALL(nvmlDeviceGetTemperature, gpu);
    WHOLE_GPU_ONLY(gpu);
    double value;
    nvmlReturn_t code = sensor ? NVML_INVALID_ARGUMENT : gpu_value(gpu, S_temperature_celsius, &value);
    if (!code) *celsius = (unsigned)llround(value);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t gpu, nvmlTemperature_t *temperature) {
    DEVICE_CALL(nvmlDeviceGetTemperatureV, gpu);
    WHOLE_GPU_ONLY(gpu);
    if (temperature->version != (sizeof *temperature | 1u << 24)) return NVML_VERSION_MISMATCH;
    double value;
    nvmlReturn_t code = temperature->sensorType ? NVML_INVALID_ARGUMENT : gpu_value(gpu, S_temperature_celsius, &value);
    if (!code) temperature->temperature = (int)llround(value);
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *utilization) {
    DEVICE_CALL(nvmlDeviceGetUtilizationRates, gpu);
    WHOLE_GPU_ONLY(gpu);
    if (gpu_in_mig_mode(gpu)) return NVML_NOT_SUPPORTED;
    double kernels, memory;
    nvmlReturn_t code = gpu_value(gpu, S_gpu_util, &kernels);
    if (!code) code = gpu_value(gpu, S_memory_util, &memory);
    if (code) return code;
    utilization->gpu = (unsigned)llround(100 * kernels);
    utilization->memory = (unsigned)llround(100 * memory);
    return NVML_SUCCESS;
}

/* Writes an entry of the driver's own size, which may be more than the header's. */
static void put_process(void *list, unsigned place, nvmlProcessInfo_t entry) {
    size_t size = (size_t)node_open()->process_bytes;
    memset((char *)list + place * size, 0, size);
    memcpy((char *)list + place * size, &entry, sizeof entry);
}

/* Contexts that living processes say they hold: files named by PID, a line `MINOR BYTES` for each device file. */
static unsigned list_told(nvmlDevice_t gpu, unsigned room, nvmlProcessInfo_t *list, unsigned found) {
    const char *folder = getenv("SKUWISE_NVML_PROCESSES");
    DIR *open_folder = folder && !gpu->parent ? opendir(folder) : NULL;
    if (!open_folder) return found;
    for (struct dirent *entry; (entry = readdir(open_folder));) {
        char path[512], alive[64], *end;
        unsigned long pid = strtoul(entry->d_name, &end, 10);
        snprintf(alive, sizeof alive, "/proc/%lu", pid);
        if (end == entry->d_name || *end || access(alive, F_OK) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "re");
        int minor;
        for (unsigned long long bytes; file && fscanf(file, "%d %llu", &minor, &bytes) == 2;) {
            if (minor != gpu->minor) continue;
            if (list && found < room) put_process(list, found, (nvmlProcessInfo_t){(unsigned)pid, bytes, ~0u, ~0u});
            found++;
        }
        if (file) fclose(file);
    }
    closedir(open_folder);
    return found;
}

static nvmlReturn_t list_processes(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *list) {
    double now = node_now();
    unsigned room = *count, found = 0;
    for (int i = 0; i < gpu->process_count; i++) {
        const process_t *process = &gpu->processes[i];
        if (now < process->from || now >= process->until) continue;
        unsigned long long memory = process->memory_known ? process->memory : ~0ULL;
        if (list && found < room) put_process(list, found, (nvmlProcessInfo_t){process->pid, memory, ~0u, ~0u});
        found++;
    }
    found = list_told(gpu, room, list, found);
    *count = found;
    return found > room || (found && !list) ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *list) {
    DEVICE_CALL(nvmlDeviceGetComputeRunningProcesses_v3, gpu);
    return list_processes(gpu, count, list);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *list) {
    DEVICE_CALL(nvmlDeviceGetComputeRunningProcesses_v2, gpu);
    return list_processes(gpu, count, list);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_t *list) {
    DEVICE_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, gpu);
    (void)list;
    *count = 0; /* no scenario has graphics clients */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t gpu, nvmlDeviceAttributes_t *attributes) {
    DEVICE_CALL(nvmlDeviceGetAttributes_v2, gpu);
    memset(attributes, 0, sizeof *attributes);
    attributes->sms = (unsigned)gpu->sms;
    attributes->memoryMB = gpu->memory_total >> 20;
    attributes->gpuSlices = attributes->computeSlices = (unsigned)gpu->slices;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t gpu, int *major, int *minor) {
    DEVICE_CALL(nvmlDeviceGetCudaComputeCapability, gpu);
    *major = gpu->compute_major;
    *minor = gpu->compute_minor;
    return NVML_SUCCESS;
}

/* As on hardware, the answer takes 20 ms of sampling: a tick must never ask. KiB/s. */
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t gpu, unsigned counter, unsigned *kib_per_second) {
    DEVICE_CALL(nvmlDeviceGetPcieThroughput, gpu);
    if (counter > 1) return NVML_INVALID_ARGUMENT;
    wait_ms(20);
    double value;
    nvmlReturn_t code = gpu_value(gpu, counter == 0 ? S_pcie_tx_bytes_per_second : S_pcie_rx_bytes_per_second, &value);
    if (!code) *kib_per_second = (unsigned)llround(value / 1024);
    return code;
}

/* ---- NVLink ---- */

static int links_active(const gpu_t *gpu) {
    return gpu->links_active < 0 || gpu->links_active > gpu->links ? gpu->links : gpu->links_active;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t gpu, unsigned link, unsigned *active) {
    DEVICE_CALL(nvmlDeviceGetNvLinkState, gpu);
    if (gpu->links == 0) return NVML_NOT_SUPPORTED;
    if (link >= (unsigned)gpu->links) return NVML_INVALID_ARGUMENT;
    *active = link < (unsigned)links_active(gpu);
    return NVML_SUCCESS;
}

static nvmlReturn_t active_link(const gpu_t *gpu, unsigned link) {
    if (gpu->links == 0) return NVML_NOT_SUPPORTED;
    return link < (unsigned)links_active(gpu) ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t gpu, unsigned link, unsigned *version) {
    DEVICE_CALL(nvmlDeviceGetNvLinkVersion, gpu);
    *version = gpu->architecture >= 10 ? 5 : gpu->architecture >= 9 ? 4 : 3;
    return active_link(gpu, link);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t gpu, unsigned link, nvmlPciInfo_t *pci) {
    DEVICE_CALL(nvmlDeviceGetNvLinkRemotePciInfo_v2, gpu);
    nvmlReturn_t code = active_link(gpu, link);
    return code ? code : fill_pci("00000000:05:00.0", pci); /* every link leads to a switch */
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t gpu, unsigned link, unsigned *type) {
    DEVICE_CALL(nvmlDeviceGetNvLinkRemoteDeviceType, gpu);
    *type = 2;
    return active_link(gpu, link);
}

/* ---- field values: counters are integrals of the scenario's rates ---- */

static double energy_joules(const gpu_t *gpu) { return counter_at(&gpu->energy, &gpu->series[S_power_watts], node_now()); }

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t gpu, unsigned long long *millijoules) {
    DEVICE_CALL(nvmlDeviceGetTotalEnergyConsumption, gpu);
    double ignored;
    nvmlReturn_t code = gpu_value(gpu, S_energy_status, &ignored);
    if (!code) *millijoules = (unsigned long long)(1e3 * energy_joules(gpu));
    return code;
}

static nvmlReturn_t set_ull(nvmlFieldValue_t *field, double number) {
    field->valueType = 3;
    field->value.ull = (unsigned long long)number;
    return NVML_SUCCESS;
}

static nvmlReturn_t set_uint(nvmlFieldValue_t *field, double number) {
    field->valueType = 1;
    field->value.u = (unsigned)llround(number);
    return NVML_SUCCESS;
}

/* Traffic of one link, or of all for scope UINT_MAX; fields 202 and 204 know single links only. */
static nvmlReturn_t link_counter(nvmlDevice_t gpu, nvmlFieldValue_t *field, series_id rate, int kib, double overhead) {
    nvlink_counters_t kind = kib ? COUNTERS_KIB : COUNTERS_BYTES;
    double ignored;
    nvmlReturn_t code = gpu_value(gpu, S_nvlink_status, &ignored);
    if (code) return code;
    if (links_active(gpu) == 0 || (gpu->nvlink_counters != kind && gpu->nvlink_counters != COUNTERS_BOTH))
        return NVML_NOT_SUPPORTED;
    int all = kib && field->scopeId == UINT32_MAX;
    if (!all && field->scopeId >= (uint32_t)links_active(gpu)) return NVML_INVALID_ARGUMENT;
    double bytes = counter_at(&gpu->nvlink, &gpu->series[rate], node_now()) * overhead;
    return set_ull(field, (all ? bytes : bytes / links_active(gpu)) / (kib ? 1024 : 1));
}

static nvmlReturn_t pcie_counter(nvmlDevice_t gpu, nvmlFieldValue_t *field, series_id rate) {
    double ignored;
    nvmlReturn_t code = gpu_value(gpu, S_pcie_status, &ignored);
    double bytes = counter_at(&gpu->pcie, &gpu->series[rate], node_now());
    return code ? code : set_ull(field, gpu->pcie_counter_bits < 64 ? fmod(bytes, ldexp(1, gpu->pcie_counter_bits)) : bytes);
}

static nvmlReturn_t read_field(nvmlDevice_t gpu, nvmlFieldValue_t *field) {
    const double raw = 17.0 / 16; /* protocol overhead of the raw counters: a choice of the stub */
    double value;
    nvmlReturn_t code;
    switch (field->fieldId) {
    case 83:
        code = gpu_value(gpu, S_energy_status, &value);
        return code ? code : set_ull(field, 1e3 * energy_joules(gpu));
    case 90: return gpu->links ? set_uint(field, gpu->link_mb_per_second) : NVML_NOT_SUPPORTED;
    case 91: return gpu->links ? set_uint(field, gpu->links) : NVML_NOT_SUPPORTED;
    case 138: return link_counter(gpu, field, S_nvlink_tx_bytes_per_second, 1, 1);
    case 139: return link_counter(gpu, field, S_nvlink_rx_bytes_per_second, 1, 1);
    case 140: return link_counter(gpu, field, S_nvlink_tx_bytes_per_second, 1, raw);
    case 141: return link_counter(gpu, field, S_nvlink_rx_bytes_per_second, 1, raw);
    case 185:
    case 186:
        code = gpu_value(gpu, S_power_watts, &value);
        return code ? code : set_uint(field, 1e3 * value);
    case 197: return pcie_counter(gpu, field, S_pcie_tx_bytes_per_second);
    case 198: return pcie_counter(gpu, field, S_pcie_rx_bytes_per_second);
    case 202: return link_counter(gpu, field, S_nvlink_tx_bytes_per_second, 0, 1);
    case 204: return link_counter(gpu, field, S_nvlink_rx_bytes_per_second, 0, 1);
    default: return NVML_NOT_SUPPORTED;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, nvmlFieldValue_t *fields) {
    DEVICE_CALL(nvmlDeviceGetFieldValues, gpu);
    WHOLE_GPU_ONLY(gpu);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000;
        fields[i].latencyUsec = 0;
        fields[i].nvmlReturn = (uint32_t)read_field(gpu, &fields[i]);
    }
    return NVML_SUCCESS;
}
