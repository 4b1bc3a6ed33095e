# cmake -DWEB=web -DWORK=build/src/web -DNPM=/usr/bin/npm -P BundleCharts.cmake: fills WORK/assets with what reports carry.
# NPM may be empty. Never fails: where the packages cannot be had it says so, and there is no assets/charts.js.
file(REMOVE_RECURSE ${WORK}/assets)
file(MAKE_DIRECTORY ${WORK}/assets)
file(COPY ${WEB}/report.css ${WEB}/page.js DESTINATION ${WORK}/assets)
if(NPM STREQUAL "")
  return()
endif()

file(COPY ${WEB}/package.json ${WEB}/package-lock.json ${WEB}/.npmrc ${WEB}/charts.js DESTINATION ${WORK})
file(SHA256 ${WEB}/package-lock.json wanted)
set(there "")
if(EXISTS ${WORK}/node_modules/installed)
  file(READ ${WORK}/node_modules/installed there)
endif()
set(result 0)
if(NOT there STREQUAL wanted)
  execute_process(COMMAND ${NPM} ci --ignore-scripts --prefer-offline --silent --fetch-retries=1
    --fetch-retry-mintimeout=1000 --fetch-timeout=20000 WORKING_DIRECTORY ${WORK} TIMEOUT 180
    RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(result EQUAL 0)
    file(WRITE ${WORK}/node_modules/installed ${wanted})
  endif()
endif()
if(result EQUAL 0)
  execute_process(COMMAND ${NPM} run --silent build WORKING_DIRECTORY ${WORK} TIMEOUT 180
    RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
endif()
if(result EQUAL 0)
  file(COPY ${WORK}/dist/charts.js DESTINATION ${WORK}/assets)
else()
  message(STATUS "npm cannot bundle the charts of reports, which will be pictures (touch web/charts.js and build again to "
    "retry): ${result} ${log}")
endif()
