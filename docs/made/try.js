// Shows the OpenAPI document of the graph that serves this page. The key stays in this tab's memory.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  tagsSorter: "alpha",
  tryItOutEnabled: true,
  validatorUrl: null,
});
