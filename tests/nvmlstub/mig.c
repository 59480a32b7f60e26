/* MIG: mode, the handles of instances, and their numbers. Instances live where `exists` says so. */
#include "node.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    DEVICE_CALL(nvmlDeviceGetMigMode, gpu);
    *current = *pending = (unsigned)gpu_in_mig_mode(gpu);
    return (gpu->gpm || gpu->instance_count) && !gpu->parent ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, unsigned index, nvmlDevice_t *instance) {
    DEVICE_CALL(nvmlDeviceGetMigDeviceHandleByIndex, gpu);
    if (gpu->parent) return NVML_INVALID_ARGUMENT;
    if (index >= (unsigned)gpu->instance_count || !gpu_exists(gpu->instances[index])) return NVML_NOT_FOUND;
    *instance = gpu->instances[index];
    return device_fault(F_nvmlDeviceGetMigDeviceHandleByIndex, *instance);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t gpu, unsigned *is_instance) {
    DEVICE_CALL(nvmlDeviceIsMigDeviceHandle, gpu);
    *is_instance = gpu->parent != NULL;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t gpu, unsigned *id) {
    DEVICE_CALL(nvmlDeviceGetGpuInstanceId, gpu);
    *id = (unsigned)gpu->gpu_instance;
    return gpu->parent ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t gpu, unsigned *id) {
    DEVICE_CALL(nvmlDeviceGetComputeInstanceId, gpu);
    *id = (unsigned)gpu->compute_instance;
    return gpu->parent ? NVML_SUCCESS : NVML_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t gpu, nvmlDevice_t *parent) {
    DEVICE_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, gpu);
    *parent = gpu->parent;
    return gpu->parent ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}
