"""The nodes of the catalog that the scenarios are made of."""

H100_IB = "azure/Standard_ND96isr_H100_v5"
H100_ETHERNET = "azure/Standard_ND96is_H100_v5"  # the same host, region and GPUs without the fabric
H200_IB = "azure/Standard_ND96isr_H200_v5"
A100_IB = "azure/Standard_ND96amsr_A100_v4"
A100_ETHERNET = "azure/Standard_ND96ams_A100_v4"
A100_PCIE = "azure/Standard_NC24ads_A100_v4"  # one GPU
B200_EFA = "aws/p6-b200.48xlarge"
L40S_PCIE = "crusoe/l40s-48gb.8x"
L40S_EFA = "aws/g6e.48xlarge"
L40S_4 = "aws/g6e.12xlarge"
L4_4 = "aws/g6.12xlarge"
L4_1 = "aws/g6.xlarge"
A10G_4 = "aws/g5.12xlarge"
A10G_1 = "aws/g5.xlarge"
T4_4 = "azure/Standard_NC64as_T4_v3"
T4_1 = "aws/g4dn.xlarge"
# How nodes are named.
PREFIXES = {
    A10G_1: "gpu-a10g", A10G_4: "gpu-a10g-x4", T4_1: "gpu-t4", T4_4: "gpu-t4-x4", L4_4: "gpu-l4-x4",
    A100_PCIE: "gpu-a100-pcie", A100_ETHERNET: "gpu-a100", B200_EFA: "gpu-b200", H100_ETHERNET: "gpu-h100",
}  # fmt: skip
