/* Reads a scenario file and answers for any second of it. The format is described in README.md. */
#define _GNU_SOURCE
#include "scenario.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_NAME(name) #name,
#define SERIES_NAME(name, initial) #name,
#define SERIES_INITIAL(name, initial) initial,

const char *const function_names[FUNCTION_COUNT] = {FUNCTIONS(FUNCTION_NAME)};
static const char *const series_names[SERIES_COUNT] = {SERIES(SERIES_NAME)};
static const double series_initial[SERIES_COUNT] = {SERIES(SERIES_INITIAL)};

const step_t *series_at(const series_t *series, double now) {
    const step_t *found = NULL;
    if (series->every > 0) now = fmod(now, series->every);
    for (int i = 0; i < series->count && series->steps[i].at <= now; i++) found = &series->steps[i];
    return found;
}

static double once_integral(const series_t *series, double from, double to) {
    double sum = 0;
    for (int i = 0; i < series->count; i++) {
        const step_t *step = &series->steps[i];
        double begin = fmax(from, step->at);
        double end = i + 1 < series->count ? fmin(to, series->steps[i + 1].at) : to;
        if (end > begin && step->code == 0 && !isnan(step->value)) sum += step->value * (end - begin);
    }
    return sum;
}

double series_integral(const series_t *series, double from, double to) {
    double every = series->every;
    if (!(every > 0)) return once_integral(series, from, to);
    double rounds = floor(to / every) - floor(from / every);
    return rounds * once_integral(series, 0, every) + once_integral(series, 0, fmod(to, every)) -
           once_integral(series, 0, fmod(from, every));
}

double counter_at(const counter_t *counter, const series_t *rate, double now) {
    double since = 0, base = counter->start;
    for (int i = 0; i < counter->count; i++)
        if (counter->at[i] <= now && counter->at[i] >= since) since = counter->at[i], base = 0;
    return base + series_integral(rate, since, now);
}

/* ---- the parser: strict, one sentence and -1 at the first thing it does not know ---- */

static const char *parse_number(const char *text, double *number) {
    char *end;
    *number = strtod(text, &end);
    return end == text || (*end && !isspace((unsigned char)*end)) ? "is not a number" : NULL;
}

static const char *parse_value(const char *word, step_t *step) {
    step->value = 0;
    step->code = 0;
    if (strcmp(word, "ok") == 0) return NULL;
    if (word[0] == '!') {
        step->code = atoi(word + 1);
        return step->code > 0 ? NULL : "has an error code that is no positive number";
    }
    return parse_number(word, &step->value);
}

static const char *parse_series(const char *text, series_t *series) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    series->count = 0;
    series->every = 0;
    char *rest = NULL;
    for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        if (series->every > 0) return "goes on after its every:";
        if (strncmp(word, "every:", 6) == 0) {
            if (series->count == 0 || parse_number(word + 6, &series->every)) return "repeats nothing, or never";
            if (!(series->every > series->steps[series->count - 1].at)) return "repeats before its last step";
            continue;
        }
        if (series->count == MAX_STEPS) return "has too many steps";
        step_t *step = &series->steps[series->count];
        char *colon = strchr(word, ':');
        if (colon) *colon = 0;
        if (!colon && series->count > 0) return "has a later step without TIME:";
        step->at = 0;
        const char *wrong = colon ? parse_number(word, &step->at) : NULL;
        if (!wrong) wrong = parse_value(colon ? colon + 1 : word, step);
        if (wrong) return wrong;
        if (series->count > 0 && step->at <= step[-1].at) return "has steps that do not go forward in time";
        series->count++;
    }
    return series->count ? NULL : "is empty";
}

static const char *parse_counter_resets(const char *text, counter_t *counter) {
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        if (counter->count == MAX_RESETS) return "has too many resets";
        const char *wrong = parse_number(word, &counter->at[counter->count]);
        if (wrong) return wrong;
        counter->count++;
    }
    return NULL;
}

static const char *parse_process(const char *text, gpu_t *gpu) {
    char memory[32] = "-";
    process_t process = {.from = 0, .until = INFINITY};
    if (gpu->process_count == MAX_PROCESSES) return "is one process too many";
    if (sscanf(text, "%u %31s %lf %lf", &process.pid, memory, &process.from, &process.until) < 1) return "has no PID";
    process.memory_known = strcmp(memory, "-") != 0;
    if (process.memory_known) process.memory = strtoull(memory, NULL, 10);
    gpu->processes[gpu->process_count++] = process;
    return NULL;
}

static const char *parse_event(const char *text, event_t *events, int *count) {
    event_t event = {.count = 1, .instance = -1};
    char type[32], data[32];
    if (*count == MAX_EVENTS) return "is one event too many";
    if (sscanf(text, "%lf %31s %31s %d %lf %d", &event.at, type, data, &event.count, &event.every, &event.instance) < 3)
        return "is not TIME TYPE DATA [COUNT [EVERY [GPU INSTANCE]]]";
    event.type = strtoull(type, NULL, 0);
    event.data = strtoull(data, NULL, 0);
    if (event.count < 1 || event.every < 0) return "has no count or a negative distance";
    events[(*count)++] = event;
    return NULL;
}

/* Returns 1 where `key` is PREFIX.FUNCTION; *found is -1 for an unknown function, FUNCTION_COUNT for "*". */
static int function_key(const char *key, const char *prefix, int *found) {
    size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) != 0 || key[length] != '.') return 0;
    *found = -1;
    if (strcmp(key + length + 1, "*") == 0) *found = FUNCTION_COUNT;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strcmp(key + length + 1, function_names[i]) == 0) *found = i;
    return 1;
}

static const char *set_series(series_t **slot, const char *value) {
    if (!*slot) *slot = calloc(1, sizeof **slot);
    return *slot ? parse_series(value, *slot) : "does not fit into memory";
}

static const char *set_system(node_t *node, const char *key, const char *value) {
    int function;
    double number = 0;
    if (function_key(key, "fault", &function))
        return function < 0 || function == FUNCTION_COUNT ? "names an unknown function"
                                                          : set_series(&node->fault[function], value);
    if (function_key(key, "delay_ms", &function))
        return function < 0 || function == FUNCTION_COUNT ? "names an unknown function"
                                                          : set_series(&node->delay_ms[function], value);
    if (strcmp(key, "event") == 0) return parse_event(value, node->events, &node->event_count);
    if (strcmp(key, "driver") == 0) return snprintf(node->driver, TEXT, "%s", value), NULL;
    if (strcmp(key, "cuda") == 0) {
        const char *wrong = parse_number(value, &number);
        node->cuda = (int)number;
        return wrong;
    }
    if (strcmp(key, "process_bytes") == 0) {
        const char *wrong = parse_number(value, &number);
        node->process_bytes = (int)number;
        return wrong || number < 24 || number > 64 ? "is not a number from 24 to 64" : NULL;
    }
    return "is not a key of [system]";
}

static const char *set_flag(const char *value, int *flag) {
    *flag = strcmp(value, "yes") == 0;
    return *flag || strcmp(value, "no") == 0 ? NULL : "is neither yes nor no";
}

static const char *set_link_counters(const char *value, nvlink_counters_t *kind) {
    static const char *const names[] = {"none", "kib", "bytes", "both"};
    for (int i = 0; i < 4; i++)
        if (strcmp(value, names[i]) == 0) return *kind = (nvlink_counters_t)i, NULL;
    return "is not one of none, kib, bytes, both";
}

static const char *set_number(gpu_t *gpu, const char *key, const char *value) {
    struct { const char *key; int *whole; double *real; unsigned long long *big; } const targets[] = {
        {"minor", &gpu->minor, NULL, NULL},
        {"architecture", &gpu->architecture, NULL, NULL},
        {"compute_major", &gpu->compute_major, NULL, NULL},
        {"compute_minor", &gpu->compute_minor, NULL, NULL},
        {"cores", &gpu->cores, NULL, NULL},
        {"sms", &gpu->sms, NULL, NULL},
        {"gpu_instance", &gpu->gpu_instance, NULL, NULL},
        {"compute_instance", &gpu->compute_instance, NULL, NULL},
        {"slices", &gpu->slices, NULL, NULL},
        {"event_types", NULL, NULL, &gpu->event_types},
        {"pcie_gen", &gpu->pcie_gen, NULL, NULL},
        {"pcie_width", &gpu->pcie_width, NULL, NULL},
        {"pcie_counter_bits", &gpu->pcie_counter_bits, NULL, NULL},
        {"nvlink_links", &gpu->links, NULL, NULL},
        {"nvlink_links_active", &gpu->links_active, NULL, NULL},
        {"nvlink_mb_per_second", &gpu->link_mb_per_second, NULL, NULL},
        {"memory_total_bytes", NULL, NULL, &gpu->memory_total},
        {"memory_reserved_bytes", NULL, NULL, &gpu->memory_reserved},
        {"power_limit_watts", NULL, &gpu->power_limit_watts, NULL},
        {"sm_clock_max_hertz", NULL, &gpu->sm_clock_max_hertz, NULL},
        {"mem_clock_max_hertz", NULL, &gpu->mem_clock_max_hertz, NULL},
        {"energy_start_joules", NULL, &gpu->energy.start, NULL},
        {"nvlink_start_bytes", NULL, &gpu->nvlink.start, NULL},
        {"pcie_start_bytes", NULL, &gpu->pcie.start, NULL},
    };
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(key, targets[i].key) != 0) continue;
        double number = 0;
        const char *wrong = parse_number(value, &number);
        if (wrong || !(number >= 0) || number > 1e18) return "is not a number from 0 on";
        if (targets[i].whole) *targets[i].whole = (int)number;
        if (targets[i].real) *targets[i].real = number;
        if (targets[i].big) *targets[i].big = (unsigned long long)number;
        return gpu->links > MAX_LINKS ? "is more links than a GPU has" : NULL;
    }
    return "is not a key of [gpu]";
}

static const char *set_gpu(gpu_t *gpu, const char *key, const char *value) {
    int function;
    if (function_key(key, "fault", &function)) {
        if (function < 0) return "names an unknown function";
        return set_series(function == FUNCTION_COUNT ? &gpu->any_fault : &gpu->fault[function], value);
    }
    if (function_key(key, "delay_ms", &function))
        return function < 0 || function == FUNCTION_COUNT ? "names an unknown function"
                                                          : set_series(&gpu->delay_ms[function], value);
    for (int i = 0; i < SERIES_COUNT; i++)
        if (strcmp(key, series_names[i]) == 0) return parse_series(value, &gpu->series[i]);
    if (strcmp(key, "name") == 0) return snprintf(gpu->name, TEXT, "%s", value), NULL;
    if (strcmp(key, "uuid") == 0) return snprintf(gpu->uuid, TEXT, "%s", value), NULL;
    if (strcmp(key, "bus_id") == 0) return snprintf(gpu->bus_id, sizeof gpu->bus_id, "%s", value), NULL;
    if (strcmp(key, "gpm") == 0) return set_flag(value, &gpu->gpm);
    if (strcmp(key, "nvlink_counters") == 0) return set_link_counters(value, &gpu->nvlink_counters);
    if (strcmp(key, "event") == 0) return parse_event(value, gpu->events, &gpu->event_count);
    if (strcmp(key, "process") == 0) return parse_process(value, gpu);
    if (strcmp(key, "energy_reset_at") == 0) return parse_counter_resets(value, &gpu->energy);
    if (strcmp(key, "nvlink_reset_at") == 0) return parse_counter_resets(value, &gpu->nvlink);
    if (strcmp(key, "pcie_reset_at") == 0) return parse_counter_resets(value, &gpu->pcie);
    return set_number(gpu, key, value);
}

static gpu_t *new_gpu(int index) {
    gpu_t *gpu = calloc(1, sizeof *gpu);
    if (!gpu) return NULL;
    gpu->index = gpu->minor = index;
    snprintf(gpu->name, TEXT, "NVIDIA H100 80GB HBM3");
    snprintf(gpu->uuid, TEXT, "GPU-00000000-0000-4000-8000-%012d", index);
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "00000000:%02X:00.0", 0x10 + index);
    gpu->memory_total = 85520809984ULL;
    gpu->memory_reserved = 625ULL << 20;
    gpu->power_limit_watts = 700;
    gpu->sm_clock_max_hertz = 1.98e9;
    gpu->mem_clock_max_hertz = 2.619e9;
    gpu->gpm = 1;
    gpu->links_active = -1;
    gpu->link_mb_per_second = 26562;
    gpu->architecture = 9;
    gpu->compute_major = 9;
    gpu->cores = 16896;
    gpu->sms = 132;
    gpu->pcie_gen = 5;
    gpu->pcie_width = 16;
    gpu->pcie_counter_bits = 64;
    gpu->nvlink_counters = COUNTERS_KIB;
    gpu->event_types = 0x10f; /* ECC single and double bit, P-state, XID, MIG configuration: a choice of the stub */
    gpu->energy.start = 1e6;
    gpu->nvlink.start = 1e9;
    gpu->pcie.start = 1e9;
    for (int i = 0; i < SERIES_COUNT; i++) {
        gpu->series[i].count = 1;
        gpu->series[i].steps[0] = (step_t){0, series_initial[i], 0};
    }
    return gpu;
}

/* [mig G/I]: instance I of GPU G, which must stand before it. */
static const char *open_instance(node_t *node, int number, int place, gpu_t **instance) {
    if (number < 0 || number >= node->gpu_count || !node->gpus[number]) return "names a GPU that does not stand before it";
    gpu_t *parent = node->gpus[number];
    if (place < 0 || place >= MAX_INSTANCES || place > parent->instance_count) return "skips an instance";
    if (place == parent->instance_count) {
        gpu_t *made = new_gpu(number);
        if (!made) return "does not fit into memory";
        snprintf(made->name, TEXT, "%.70s MIG 1g.10gb", parent->name);
        snprintf(made->uuid, TEXT, "MIG-00000000-0000-4000-8000-%06d%06d", number, place);
        made->parent = parent;
        made->gpm = parent->gpm;
        made->gpu_instance = place + 1;
        made->slices = 1;
        made->sms = 16;
        made->memory_total = 10468982784ULL;
        made->memory_reserved = 0;
        parent->instances[parent->instance_count++] = made;
    }
    *instance = parent->instances[place];
    return NULL;
}

static const char *open_section(node_t *node, char *text, int *first, int *last, gpu_t **instance) {
    *first = *last = -1;
    *instance = NULL;
    if (strcmp(text, "system") == 0) return NULL;
    int taken = 0, number, place;
    if (sscanf(text, "mig %d/%d%n", &number, &place, &taken) == 2 && !text[taken])
        return open_instance(node, number, place, instance);
    if (sscanf(text, "gpu %d-%d%n", first, last, &taken) != 2 || text[taken]) {
        if (sscanf(text, "gpu %d%n", first, &taken) != 1 || text[taken]) return "is not [system], [gpu N], [gpu N-M] or [mig N/I]";
        *last = *first;
    }
    if (*first < 0 || *last < *first || *last >= MAX_GPUS) return "names GPUs outside 0..63";
    for (int i = *first; i <= *last; i++) {
        if (!node->gpus[i] && !(node->gpus[i] = new_gpu(i))) return "does not fit into memory";
        if (i >= node->gpu_count) node->gpu_count = i + 1;
    }
    return NULL;
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

static const char *read_line(node_t *node, char *text, int *first, int *last, gpu_t **instance, int *in_section) {
    if (text[0] == '[') {
        char *end = strchr(text, ']');
        if (!end || end[1]) return "has no closing bracket";
        *end = 0;
        *in_section = 1;
        return open_section(node, text + 1, first, last, instance);
    }
    char *equals = strchr(text, '=');
    if (!equals) return "is neither a section nor KEY = VALUE";
    if (!*in_section) return "stands before the first section";
    *equals = 0;
    char *key = trim(text), *value = trim(equals + 1);
    if (*instance) return set_gpu(*instance, key, value);
    if (*first < 0) return set_system(node, key, value);
    if (*first < *last && (strcmp(key, "uuid") == 0 || strcmp(key, "bus_id") == 0)) return "would be the same for many";
    const char *wrong = NULL;
    for (int i = *first; i <= *last && !wrong; i++) wrong = set_gpu(node->gpus[i], key, value);
    return wrong;
}

int scenario_load(const char *path, node_t *node) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "nvmlstub: cannot read the scenario %s\n", path);
        return -1;
    }
    snprintf(node->driver, TEXT, "570.86.15");
    node->cuda = 12080;
    node->process_bytes = 24;
    char line[4096];
    int number = 0, first = -1, last = -1, in_section = 0;
    gpu_t *instance = NULL;
    const char *wrong = NULL;
    while (!wrong && fgets(line, sizeof line, file)) {
        number++;
        char *hash = strchr(line, '#');
        if (hash) *hash = 0;
        char *text = trim(line);
        if (*text) wrong = read_line(node, text, &first, &last, &instance, &in_section);
        if (wrong) fprintf(stderr, "nvmlstub: %s, line %d: '%s' %s\n", path, number, text, wrong);
    }
    fclose(file);
    for (int i = 0; i < node->gpu_count && !wrong; i++)
        if (!node->gpus[i]) wrong = "", fprintf(stderr, "nvmlstub: %s: there is no [gpu %d]\n", path, i);
    return wrong ? -1 : 0;
}
