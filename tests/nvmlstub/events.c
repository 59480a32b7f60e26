/* Events: sets, what is registered in them, and a wait that gives the scenario's events at their time. */
#include "node.h"

#include <stdlib.h>

enum { SET_MAGIC = 0x657674 };
typedef struct {
    unsigned magic;
    unsigned long long types[MAX_GPUS];
    double since[MAX_GPUS];      /* when the GPU was registered: what came before is nobody's */
    int given[MAX_GPUS + 1][MAX_EVENTS]; /* how many of each event were given; the last row is the node's own */
    double made;
} event_set_t;
typedef struct { nvmlDevice_t device; unsigned long long eventType, eventData; unsigned gpuInstanceId, computeInstanceId; } nvmlEventData_t;

static atomic_long live;

long event_live_sets(void) { return atomic_load(&live); }

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t gpu, unsigned long long *types) {
    DEVICE_CALL(nvmlDeviceGetSupportedEventTypes, gpu);
    *types = gpu->event_types;
    return gpu->parent ? NVML_NOT_SUPPORTED : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(event_set_t **set) {
    SYSTEM_CALL(nvmlEventSetCreate);
    *set = calloc(1, sizeof **set);
    if (!*set) return NVML_UNKNOWN;
    (*set)->magic = SET_MAGIC;
    (*set)->made = node_now();
    atomic_fetch_add(&live, 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(event_set_t *set) {
    SYSTEM_CALL(nvmlEventSetFree);
    if (!set || set->magic != SET_MAGIC) return NVML_INVALID_ARGUMENT;
    set->magic = 0;
    free(set);
    atomic_fetch_sub(&live, 1);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t gpu, unsigned long long types, event_set_t *set) {
    DEVICE_CALL(nvmlDeviceRegisterEvents, gpu);
    if (!set || set->magic != SET_MAGIC) return NVML_INVALID_ARGUMENT;
    if (gpu->parent || (types & ~gpu->event_types)) return NVML_NOT_SUPPORTED;
    set->types[gpu->index] |= types;
    set->since[gpu->index] = node_now();
    return NVML_SUCCESS;
}

/* The next of `events` that is due and was not given yet. */
static const event_t *next_due(const event_t *events, int count, int *given, unsigned long long types, double since) {
    for (int i = 0; i < count; i++) {
        const event_t *event = &events[i];
        if (!(event->type & types)) continue;
        while (given[i] < event->count && event->at + given[i] * event->every < since) given[i]++;
        if (given[i] == event->count || event->at + given[i] * event->every > node_now()) continue;
        given[i]++;
        return event;
    }
    return NULL;
}

static int give(event_set_t *set, nvmlEventData_t *data) {
    node_t *node = node_open();
    for (int i = -1; node && i < node->gpu_count; i++) {
        gpu_t *gpu = i < 0 ? NULL : node->gpus[i];
        const event_t *event =
            gpu ? next_due(gpu->events, gpu->event_count, set->given[i], set->types[i], set->since[i])
                : next_due(node->events, node->event_count, set->given[MAX_GPUS], ~0ULL, set->made);
        if (!event) continue;
        unsigned instance = event->instance < 0 ? ~0u : (unsigned)event->instance;
        *data = (nvmlEventData_t){gpu, event->type, event->data, instance, event->instance < 0 ? ~0u : 0};
        return 1;
    }
    return 0;
}

/* When the first of `events` that was not given yet is due; `until` where none comes earlier. */
static double first_due(const event_t *events, int count, const int *given, unsigned long long types, double until) {
    for (int i = 0; i < count; i++) {
        double at = events[i].at + given[i] * events[i].every;
        if ((events[i].type & types) && given[i] < events[i].count && at < until) until = at;
    }
    return until;
}

/* Seconds to the next event, `longest` at the most. A clock that somebody sets is looked at every 50 ms. */
static double seconds_to_wait(const event_set_t *set, double longest) {
    const node_t *node = node_open();
    const double now = node_now();
    if (!node || clock_is_set()) return longest < 0.05 ? longest : 0.05;
    double until = first_due(node->events, node->event_count, set->given[MAX_GPUS], ~0ULL, now + longest);
    for (int i = 0; i < node->gpu_count; i++)
        until = first_due(node->gpus[i]->events, node->gpus[i]->event_count, set->given[i], set->types[i], until);
    return until > now ? until - now : 0;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(event_set_t *set, nvmlEventData_t *data, unsigned timeout_ms) {
    SYSTEM_CALL(nvmlEventSetWait_v2);
    if (!set || set->magic != SET_MAGIC) return NVML_INVALID_ARGUMENT;
    /* A driver sleeps until there is something, so the stub does too. */
    for (double left = 1e-3 * timeout_ms;;) {
        if (!node_open()) return NVML_UNINITIALIZED;
        if (give(set, data)) return NVML_SUCCESS;
        if (left <= 0) return NVML_TIMEOUT;
        const double seconds = seconds_to_wait(set, left);
        wait_ms(1e3 * seconds);
        left -= seconds;
    }
}
