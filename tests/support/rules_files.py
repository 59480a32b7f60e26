"""One valid entry of each kind of rules file, for tests that change a part of it."""

CUSTOM = """id: slow-input
severity: medium
reason: below this our loaders cannot keep an H100 busy
kinds: [training, fine-tuning]
when:
  - {feature: cpu, operator: above, value: 0.8}
  - {feature: engine_active, operator: below, value: 0.6}
text: "{workload} waits for its input: CPUs {cpu} busy."
would_change_if:
  - The loader is given more cores.
"""
PRIOR = """priors:
  ours:
    of: namespace
    names: [prod-llm]
    words: [llm*]
    log_odds: {online-inference: 4.0, interactive: -2.0}
    says: where only services run
    reason: nothing else is admitted there
"""
NODES = """
provider: own
sources: {contract: our contract}
nodes:
  box-8:
    gpu: H100-SXM5
    gpu_count: 8
    family: box
    link: nvswitch
    fabric: {kind: infiniband, gbit_per_second: 3200, nics: 8, rdma: true}
    vcpus: 192
    prices:
      - {region: here, usd_per_hour: 40.5, source: contract, as_of: 2026-11-01}
    source: contract
    as_of: 2026-11-01
  plain-8:
    gpu: H100-SXM5
    gpu_count: 8
    family: box
    link: nvswitch
    fabric: {kind: ethernet}
    source: contract
    as_of: 2026-11-01
"""
GPU = """
vendor: NVIDIA
gpus:
  X100:
    aliases: ["NVIDIA X100"]
    architecture: Hopper
    compute_capability: "9.0"
    sm_count: 132
    boost_mhz: 1980
    tensor: {reference_mhz: 1830, flop_per_clock_per_sm: 4096, basis: published}
    dense_tflops: {fp32: 66.9, fp16: 989.4, bf16: 989.4, fp8: 1978.9, int8: 1978.9}
    memory: {gb: 80, type: HBM3, gb_per_second: 3350}
    nvlink: {gb_per_second_one_way: 450, links: 18, generation: 4}
    pcie: {generation: 5, lanes: 16}
    tdp_watts: 700
    mig_slices_max: 7
    form_factor: SXM5
    source: a datasheet
    as_of: 2026-11-01
    grade: B
"""
PRICES = """prices:
  - sku: azure/Standard_ND96isr_H100_v5
    region: eastus
    usd_per_hour: 61.2
    basis: committed
    committed_until: 2027-06-30
    source: contract 4711
    as_of: 2026-11-01
"""
PROVIDER = """providers:
  mine:
    rented: true
    reference_region: here
    source: us
    as_of: 2026-11-22
"""
