/* GPM: two samples of a GPU, and the means of the scenario's values between them. */
#include "node.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLE_MAGIC = 0x6d7067 };
typedef struct { unsigned magic; gpu_t *gpu; double at; int generation; } sample_t;
typedef struct { const char *shortName, *longName, *unit; } metric_info_t;
typedef struct { unsigned metricId; int nvmlReturn; double value; metric_info_t info; } metric_t;
typedef struct { unsigned version, numMetrics; sample_t *sample1, *sample2; metric_t metrics[]; } metrics_get_t;
typedef struct { unsigned version, isSupportedDevice; } support_t;

static const struct { unsigned id; series_id series; double scale; const char *unit; } catalogue[] = {
    {1, S_graphics_active, 100, "%"},      {2, S_sm_active, 100, "%"},
    {3, S_sm_occupancy, 100, "%"},         {4, S_integer_active, 100, "%"},
    {5, S_tensor_active, 100, "%"},        {6, S_dfma_tensor_active, 100, "%"},
    {7, S_hmma_tensor_active, 100, "%"},   {8, S_dmma_tensor_active, 100, "%"},
    {9, S_imma_tensor_active, 100, "%"},   {10, S_dram_active, 100, "%"},
    {11, S_fp64_active, 100, "%"},         {12, S_fp32_active, 100, "%"},
    {13, S_fp16_active, 100, "%"},         {20, S_pcie_tx_bytes_per_second, 1.0 / 1048576, "MiB/s"},
    {21, S_pcie_rx_bytes_per_second, 1.0 / 1048576, "MiB/s"},
    {60, S_nvlink_rx_bytes_per_second, 1.0 / 1048576, "MiB/s"},
    {61, S_nvlink_tx_bytes_per_second, 1.0 / 1048576, "MiB/s"},
};

static atomic_long live;
static double smallest_gap = -1;

long gpm_live_samples(void) { return atomic_load(&live); }
double gpm_smallest_gap_seconds(void) { return smallest_gap; }

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t gpu, support_t *support) {
    DEVICE_CALL(nvmlGpmQueryDeviceSupport, gpu);
    if (support->version != 1) return NVML_VERSION_MISMATCH;
    support->isSupportedDevice = (unsigned)gpu->gpm;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(sample_t **sample) {
    SYSTEM_CALL(nvmlGpmSampleAlloc);
    *sample = calloc(1, sizeof **sample);
    if (!*sample) return NVML_UNKNOWN;
    (*sample)->magic = SAMPLE_MAGIC;
    atomic_fetch_add(&live, 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(sample_t *sample) {
    SYSTEM_CALL(nvmlGpmSampleFree);
    if (!sample || sample->magic != SAMPLE_MAGIC) return NVML_INVALID_ARGUMENT;
    sample->magic = 0;
    free(sample);
    atomic_fetch_sub(&live, 1);
    return NVML_SUCCESS;
}

static nvmlReturn_t take_sample(gpu_t *gpu, sample_t *sample) {
    if (!sample || sample->magic != SAMPLE_MAGIC) return NVML_INVALID_ARGUMENT;
    sample->gpu = gpu;
    sample->at = node_now();
    sample->generation = gpu_generation(gpu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t gpu, sample_t *sample) {
    DEVICE_CALL(nvmlGpmSampleGet, gpu);
    if (!gpu->gpm) return NVML_NOT_SUPPORTED;
    if (gpu->parent) return NVML_INVALID_ARGUMENT; /* an instance is asked through its parent */
    return take_sample(gpu, sample);
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t gpu, unsigned instance, sample_t *sample) {
    DEVICE_CALL(nvmlGpmMigSampleGet, gpu);
    if (!gpu->gpm || gpu->parent || !gpu_in_mig_mode(gpu)) return NVML_NOT_SUPPORTED;
    for (int i = 0; i < gpu->instance_count; i++) {
        gpu_t *one = gpu->instances[i];
        if ((unsigned)one->gpu_instance != instance || !gpu_exists(one)) continue;
        nvmlReturn_t fault = device_fault(F_nvmlGpmMigSampleGet, one);
        return fault ? fault : take_sample(one, sample);
    }
    return NVML_NOT_FOUND;
}

static int metric_between(metric_t *metric, gpu_t *gpu, double from, double to) {
    for (size_t i = 0; i < sizeof catalogue / sizeof *catalogue; i++) {
        if (catalogue[i].id != metric->metricId) continue;
        if (metric->metricId >= 60 && gpu->links == 0) return NVML_NOT_SUPPORTED;
        const series_t *series = &gpu->series[catalogue[i].series];
        const step_t *step = series_at(series, to);
        if (!step) return NVML_NOT_SUPPORTED;
        metric->info.unit = catalogue[i].unit;
        metric->value = isnan(step->value) ? NAN : catalogue[i].scale * series_integral(series, from, to) / (to - from);
        return step->code;
    }
    return NVML_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(metrics_get_t *get) {
    SYSTEM_CALL(nvmlGpmMetricsGet);
    if (get->version != 1) return NVML_VERSION_MISMATCH;
    const sample_t *older = get->sample1, *newer = get->sample2;
    if (!older || !newer || older->magic != SAMPLE_MAGIC || newer->magic != SAMPLE_MAGIC) return NVML_INVALID_ARGUMENT;
    if (!older->gpu || older->gpu != newer->gpu || newer->at <= older->at) return NVML_INVALID_ARGUMENT;
    if (older->generation != newer->generation) return NVML_INVALID_ARGUMENT; /* two instances of one id */
    nvmlReturn_t fault = device_fault(F_nvmlGpmMetricsGet, newer->gpu);
    if (fault) return fault;
    if (smallest_gap < 0 || newer->at - older->at < smallest_gap) smallest_gap = newer->at - older->at;
    for (unsigned i = 0; i < get->numMetrics; i++)
        get->metrics[i].nvmlReturn = metric_between(&get->metrics[i], newer->gpu, older->at, newer->at);
    return NVML_SUCCESS;
}
