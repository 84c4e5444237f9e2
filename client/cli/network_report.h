#pragma once

#include "crossmesh/v1/network_service.pb.h"

#include <string>

namespace crossmesh {

// A description for people: where it comes from, a row per NIC, a row per rack.
std::string NetworkText(const v1::Network& network);

// A measurement: a row per link, the warnings, and the description that came of it.
std::string MeasurementText(const v1::MeasureNetworkResponse::Result& result);

// A calibration of GPUs: a row per cost, and two per GPU, what was before beside what is now, with
// the source of each; then the warnings.
std::string CalibrationText(const v1::CalibrateGpusResponse& response);

}  // namespace crossmesh
