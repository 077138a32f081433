"""The package openapi-spec-validator judges the server's /openapi.json."""

import json
import sys
import urllib.request

from openapi_spec_validator import OpenAPIV31SpecValidator

document = json.load(urllib.request.urlopen(sys.argv[1] + "/openapi.json"))
wrong = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
if wrong:
    sys.exit("\n".join(wrong))
print(f"ok: /openapi.json is OpenAPI {document['openapi']}, with {len(document['paths'])} paths")
