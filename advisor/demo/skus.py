"""The nodes of the catalog that are simulated."""

from __future__ import annotations

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
NODE_SKUS = (
    H100_IB, H100_ETHERNET, H200_IB, A100_IB, A100_ETHERNET, A100_PCIE, B200_EFA, L40S_PCIE, L40S_EFA, L40S_4, L4_4,
    L4_1, A10G_4, A10G_1, T4_4, T4_1,
)  # fmt: skip
